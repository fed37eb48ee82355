-- Applies one batch of changes of one changelog partition, all or nothing.
--
-- KEYS  position, rows, gone, expiries, next-rows, next-gone, next-expiries, old-rows
-- ARGV  lineage, offset the caller believes to be stored, offset after this batch, channel prefix,
--       then per change: key, "generation version offset timestamp", value ('' where the key is gone),
--       when it expires ('' where it does not); at most one change per key and generation
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

local position, rows, gone, expiries = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local next_rows, next_gone, next_expiries, old_rows = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local lineage, expected, reached, channels = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local FIRST, WIDTH, CHUNK = 5, 4, 1000

local stored = redis.call('HMGET', position, 'lineage', 'offset', 'generation', 'next', 'dropped')
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

-- Of one version, a row stands above a tombstone.
local function supersedes(meta, value, row, tomb)
  local held = row or tomb
  if not held then return true end
  local g1, v1 = string.match(meta, '^(%d+) (%d+)')
  local g2, v2 = string.match(held, '^(%d+) (%d+)')
  if g1 ~= g2 then return newer(g1, g2) end
  if v1 == v2 then return not row and value ~= '' end
  return newer(v1, v2)
end

local served, others = {}, {}
local next = held_next
for i = FIRST, #ARGV, WIDTH do
  local g = string.match(ARGV[i + 1], '^%d+')
  if g == generation then
    served[#served + 1] = i
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
  elseif newer(generation, g) and ARGV[i + 2] ~= '' then
    old[#old + 1] = i
  end
end

local function accepted(changes, in_rows, in_gone, accept)
  local found = {}
  for first = 1, #changes, CHUNK do
    local keys = {}
    for n = first, math.min(first + CHUNK - 1, #changes) do keys[#keys + 1] = ARGV[changes[n]] end
    local held_rows = redis.call('HMGET', in_rows, unpack(keys))
    local held_gone = redis.call('HMGET', in_gone, unpack(keys))
    for n = 1, #keys do
      local i = changes[first + n - 1]
      if accept(ARGV[i + 1], ARGV[i + 2], held_rows[n], held_gone[n]) then found[#found + 1] = i end
    end
  end
  return found
end

served = accepted(served, rows, gone, supersedes)
if next == held_next then kept = accepted(kept, next_rows, next_gone, supersedes) end
old = accepted(old, rows, gone, function(_, _, row, tomb) return not row and not tomb end)

local function write(changes, to_rows, to_gone, to_expiries)
  if #changes == 0 then return end
  local expiring = redis.call('EXISTS', to_expiries) == 1
  for first = 1, #changes, CHUNK do
    local set_rows, drop_gone, set_gone, drop_rows, set_expiries, drop_expiries = {}, {}, {}, {}, {}, {}
    for n = first, math.min(first + CHUNK - 1, #changes) do
      local i = changes[n]
      local key, meta, value, expires = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
      if value == '' then
        set_gone[#set_gone + 1] = key
        set_gone[#set_gone + 1] = meta .. ' '
        drop_rows[#drop_rows + 1] = key
      else
        set_rows[#set_rows + 1] = key
        set_rows[#set_rows + 1] = meta .. ' ' .. value
        drop_gone[#drop_gone + 1] = key
      end
      if value ~= '' and expires ~= '' then
        set_expiries[#set_expiries + 1] = expires
        set_expiries[#set_expiries + 1] = key
      else
        drop_expiries[#drop_expiries + 1] = key
      end
    end
    if #set_rows > 0 then
      redis.call('HSET', to_rows, unpack(set_rows))
      redis.call('HDEL', to_gone, unpack(drop_gone))
    end
    if #set_gone > 0 then
      redis.call('HSET', to_gone, unpack(set_gone))
      redis.call('HDEL', to_rows, unpack(drop_rows))
    end
    if expiring and #drop_expiries > 0 then redis.call('ZREM', to_expiries, unpack(drop_expiries)) end
    if #set_expiries > 0 then redis.call('ZADD', to_expiries, unpack(set_expiries)) end
  end
end

write(served, rows, gone, expiries)
if next ~= held_next then
  redis.call('UNLINK', next_rows, next_gone, next_expiries)
  redis.call('HSET', position, 'next', next)
end
write(kept, next_rows, next_gone, next_expiries)
for n = 1, #old do redis.call('HSET', old_rows, ARGV[old[n]], '') end
redis.call('HSET', position, 'offset', reached)
for n = 1, #served do
  local i = served[n]
  redis.call('PUBLISH', channels .. ARGV[i], ARGV[i + 1] .. ' ' .. ARGV[i + 2])
end
return {'applied', #served + #kept, #old}
