-- Forgets which keys have left queries up to an offset, and notes it as their horizon.
--
-- KEYS  per query: query, left
-- ARGV  offset
--
-- Returns how many keys were forgotten.

local count = 0
for at = 1, #KEYS, 2 do
  local query, left = KEYS[at], KEYS[at + 1]
  local horizon = redis.call('HGET', query, 'horizon')
  if horizon then
    local forgotten = redis.call('ZREMRANGEBYSCORE', left, '-inf', ARGV[1])
    count = count + forgotten
    if forgotten > 0 and tonumber(horizon) < tonumber(ARGV[1]) then redis.call('HSET', query, 'horizon', ARGV[1]) end
  end
end
return count
