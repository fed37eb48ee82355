-- Applies one batch of changes of one changelog partition, all or nothing.
--
-- KEYS  position, rows, gone, expiries, next-rows, next-gone, next-expiries, old-rows
-- ARGV  lineage, offset the caller believes to be stored, offset after this batch, channel prefix, number of changes,
--       then per change: key, "generation version offset timestamp value" (no value where the key is gone);
--       then per change that expires: its number, the first is 1, and when, in ms since 1970
--       at most one change per key and generation
--
-- Returns {"applied", accepted, old} or {"moved", stored offset}: nothing was written, seek there and read on;
-- the stored offset is '' where Redis has no position of this lineage. `old` counts keys put into old-rows.
--
-- A change of the served generation goes to rows, or gone, and is published. One of a later generation is kept back
-- in next-rows, or next-gone: of several later ones the latest. One of an earlier generation is dropped; where its key is
-- unknown, old-rows gets it, because the changelog may lack its tombstone.
--
-- Steps: 1 compare the position, 2 compare every version, 3 write rows, 4 move the position, 5 publish.
-- Everything is read and compared before the first write: a script that fails there has changed nothing.
--
-- What a change costs is the strings that Lua makes of it: a change comes as it is stored and published, and is never
-- taken apart but for its generation and version.

local position, rows, gone, expiries = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local next_rows, next_gone, next_expiries, old_rows = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local lineage, expected, reached, channels = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local FIRST, CHUNK = 6, 1000
local LAST = FIRST + 2 * tonumber(ARGV[5]) - 1
local ARGV, call, match, byte, tonumber, unpack = ARGV, redis.call, string.match, string.byte, tonumber, unpack

local stored = call('HMGET', position, 'lineage', 'offset', 'generation', 'next', 'dropped')
if stored[1] ~= lineage then return {'moved', ''} end
-- A position without a generation gets one when the partition is opened again.
if stored[2] ~= expected or not stored[3] then return {'moved', stored[2]} end
local generation, held_next, dropped = stored[3], stored[4], stored[5]

-- Lua numbers are doubles: decimal texts are compared by length, then in two halves that are exact.
local function newer(a, b)
  if #a ~= #b then return #a > #b end
  if #a <= 15 then return tonumber(a) > tonumber(b) end
  local a1, b1 = tonumber(string.sub(a, 1, -16)), tonumber(string.sub(b, 1, -16))
  if a1 ~= b1 then return a1 > b1 end
  return tonumber(string.sub(a, -15)) > tonumber(string.sub(b, -15))
end

-- A row may end with a blank, too.
local function is_gone(change) return byte(change, -1) == 32 and match(change, '^%d+ %d+ %d+ %d+ $') ~= nil end

-- A change is named by where its key is in ARGV.
local served, others, versions = {}, {}, {}
local next, count = held_next, 0
for i = FIRST, LAST, 2 do
  local g, v = match(ARGV[i + 1], '^(%d+) (%d+)')
  versions[i] = v
  if g == generation then
    count = count + 1
    served[count] = i
  else
    others[#others + 1] = {i, g}
    if newer(g, generation) and not (dropped and not newer(g, dropped)) and (not next or newer(g, next)) then
      next = g
    end
  end
end

local kept, old = {}, {}
for n = 1, #others do
  local i, g = others[n][1], others[n][2]
  if g == next then
    kept[#kept + 1] = i
  elseif newer(generation, g) and not is_gone(ARGV[i + 1]) then
    old[#old + 1] = i
  end
end

-- Of one version, a row stands above a tombstone.
local function supersedes(i, g1, row, tomb)
  local v1 = versions[i]
  local g2, v2 = match(row or tomb, '^(%d+) (%d+)')
  if g1 ~= g2 then return newer(g1, g2) end
  if v1 == v2 then return not row and not is_gone(ARGV[i + 1]) end
  return newer(v1, v2)
end

local function unknown() return false end

-- Which of some changes are newer than what is held of their keys, and which keys have a tombstone now.
local function accepted(changes, g, in_rows, in_gone, over)
  local found, count, tombs = {}, 0, {}
  local any_gone = call('HLEN', in_gone) > 0
  for first = 1, #changes, CHUNK do
    local keys, last = {}, math.min(first + CHUNK - 1, #changes)
    for n = first, last do keys[n - first + 1] = ARGV[changes[n]] end
    local held_rows = call('HMGET', in_rows, unpack(keys))
    local held_gone = any_gone and call('HMGET', in_gone, unpack(keys))
    for n = first, last do
      local i, row, tomb = changes[n], held_rows[n - first + 1], held_gone and held_gone[n - first + 1]
      if not row and not tomb or over(i, g, row, tomb) then
        count = count + 1
        found[count] = i
        if tomb then tombs[#tombs + 1] = ARGV[i] end
      end
    end
  end
  return found, tombs
end

local served_tombs, kept_tombs = {}, {}
if count > 0 then served, served_tombs = accepted(served, generation, rows, gone, supersedes) end
if next == held_next and #kept > 0 then kept, kept_tombs = accepted(kept, next, next_rows, next_gone, supersedes) end
if #old > 0 then old = accepted(old, generation, rows, gone, unknown) end

local expires = {}
for i = LAST + 1, #ARGV, 2 do expires[FIRST + 2 * (tonumber(ARGV[i]) - 1)] = ARGV[i + 1] end

local function in_chunks(command, key, args)
  for first = 1, #args, 2 * CHUNK do
    call(command, key, unpack(args, first, math.min(first + 2 * CHUNK - 1, #args)))
  end
end

local function write(changes, tombs, to_rows, to_gone, to_expiries)
  if #changes == 0 then return end
  local expiring = #ARGV > LAST or call('EXISTS', to_expiries) == 1
  local set_rows, at, set_gone, drop_rows, set_expiries, drop_expiries = {}, 0, {}, {}, {}, {}
  for n = 1, #changes do
    local i = changes[n]
    local key, change = ARGV[i], ARGV[i + 1]
    local going = is_gone(change)
    if going then
      set_gone[#set_gone + 1] = key
      set_gone[#set_gone + 1] = change
      drop_rows[#drop_rows + 1] = key
    else
      set_rows[at + 1] = key
      set_rows[at + 2] = change
      at = at + 2
    end
    if expires[i] and not going then
      set_expiries[#set_expiries + 1] = expires[i]
      set_expiries[#set_expiries + 1] = key
    elseif expiring then
      drop_expiries[#drop_expiries + 1] = key
    end
  end
  in_chunks('HDEL', to_gone, tombs)
  in_chunks('HDEL', to_rows, drop_rows)
  in_chunks('HSET', to_rows, set_rows)
  in_chunks('HSET', to_gone, set_gone)
  in_chunks('ZREM', to_expiries, drop_expiries)
  in_chunks('ZADD', to_expiries, set_expiries)
end

write(served, served_tombs, rows, gone, expiries)
if next ~= held_next then
  call('UNLINK', next_rows, next_gone, next_expiries)
  call('HSET', position, 'next', next)
end
write(kept, kept_tombs, next_rows, next_gone, next_expiries)
for n = 1, #old do call('HSET', old_rows, ARGV[old[n]], '') end
call('HSET', position, 'offset', reached)
for n = 1, #served do
  local i = served[n]
  call('PUBLISH', channels .. ARGV[i], ARGV[i + 1])
end
return {'applied', #served + #kept, #old}
