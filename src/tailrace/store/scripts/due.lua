-- Finds rows of one partition that have expired, with their versions, all read at one moment.
--
-- KEYS  position, rows, expiries
-- ARGV  lineage, the time in ms since 1970, at most how many
--
-- Returns {"due", key, "generation version", key, "generation version", …} in the order of expiry, or {"moved", ''} if
-- Redis has no position of this lineage.

local position, rows, expiries = KEYS[1], KEYS[2], KEYS[3]
if redis.call('HGET', position, 'lineage') ~= ARGV[1] then return {'moved', ''} end
local keys = redis.call('ZRANGEBYSCORE', expiries, '-inf', ARGV[2], 'LIMIT', 0, ARGV[3])
if #keys == 0 then return {'due'} end
local held = redis.call('HMGET', rows, unpack(keys))
local found = {'due'}
for n = 1, #keys do
  if held[n] then
    found[#found + 1] = keys[n]
    found[#found + 1] = string.match(held[n], '^%d+ %d+')
  else
    redis.call('ZREM', expiries, keys[n])
  end
end
return found
