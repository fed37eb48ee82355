-- Applies one batch of changes of one changelog partition, all or nothing.
--
-- KEYS  rows, gone, position
-- ARGV  lineage, offset the caller believes to be stored, offset after this batch, channel prefix,
--       then per change: key, "generation version offset timestamp", value ('' where the key is gone)
--
-- Returns {"applied", accepted} or {"moved", stored offset}: nothing was written, seek there and read on;
-- the stored offset is '' where Redis has no position of this lineage.
--
-- Steps: 1 compare the position, 2 compare every version, 3 write rows, 4 move the position, 5 publish.
-- Everything is read and compared before the first write: a script that fails there has changed nothing.

local rows, gone, position = KEYS[1], KEYS[2], KEYS[3]
local lineage, expected, reached, channels = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local CHUNK = 1000

local stored = redis.call('HMGET', position, 'lineage', 'offset')
if stored[1] ~= lineage then return {'moved', ''} end
if stored[2] ~= expected then return {'moved', stored[2]} end

-- Lua numbers are doubles: decimal texts are compared by length, then in two halves that are exact.
local function newer(a, b)
  if #a ~= #b then return #a > #b end
  if #a <= 15 then return tonumber(a) > tonumber(b) end
  local a1, b1 = tonumber(string.sub(a, 1, -16)), tonumber(string.sub(b, 1, -16))
  if a1 ~= b1 then return a1 > b1 end
  return tonumber(string.sub(a, -15)) > tonumber(string.sub(b, -15))
end

local function supersedes(meta, held)
  if not held then return true end
  local g1, v1 = string.match(meta, '^(%d+) (%d+)')
  local g2, v2 = string.match(held, '^(%d+) (%d+)')
  if g1 ~= g2 then return newer(g1, g2) end
  return newer(v1, v2)
end

local accepted = {}
for first = 5, #ARGV, 3 * CHUNK do
  local last = math.min(first + 3 * CHUNK - 3, #ARGV - 2)
  local keys = {}
  for i = first, last, 3 do keys[#keys + 1] = ARGV[i] end
  local held_rows = redis.call('HMGET', rows, unpack(keys))
  local held_gone = redis.call('HMGET', gone, unpack(keys))
  for n = 1, #keys do
    local i = first + 3 * (n - 1)
    if supersedes(ARGV[i + 1], held_rows[n]) and supersedes(ARGV[i + 1], held_gone[n]) then
      accepted[#accepted + 1] = i
    end
  end
end

local set_rows, drop_gone, set_gone, drop_rows = {}, {}, {}, {}
local function write()
  if #set_rows > 0 then
    redis.call('HSET', rows, unpack(set_rows))
    redis.call('HDEL', gone, unpack(drop_gone))
  end
  if #set_gone > 0 then
    redis.call('HSET', gone, unpack(set_gone))
    redis.call('HDEL', rows, unpack(drop_rows))
  end
  set_rows, drop_gone, set_gone, drop_rows = {}, {}, {}, {}
end

for n = 1, #accepted do
  local i = accepted[n]
  local key, meta, value = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if value == '' then
    set_gone[#set_gone + 1] = key
    set_gone[#set_gone + 1] = meta .. ' '
    drop_rows[#drop_rows + 1] = key
  else
    set_rows[#set_rows + 1] = key
    set_rows[#set_rows + 1] = meta .. ' ' .. value
    drop_gone[#drop_gone + 1] = key
  end
  if n % CHUNK == 0 then write() end
end
write()
redis.call('HSET', position, 'offset', reached)
for n = 1, #accepted do
  local i = accepted[n]
  redis.call('PUBLISH', channels .. ARGV[i], ARGV[i + 1] .. ' ' .. ARGV[i + 2])
end
return {'applied', #accepted}
