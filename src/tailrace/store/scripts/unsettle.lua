-- Lets no query of one partition be taken for complete: who opens the partition does not know what was evaluated before.
--
-- KEYS  per query: query
-- ARGV  offset that is stored
--
-- A break begins here, unless one that has begun earlier has not ended. It ends when settle.lua says so. Only the last
-- break is noted: who resumes from before the end of an earlier one is below the horizon.

for n = 1, #KEYS do
  local query = KEYS[n]
  local held = redis.call('HMGET', query, 'ready', 'horizon')
  if held[1] then
    if tonumber(held[1]) > tonumber(held[2]) then redis.call('HSET', query, 'horizon', held[1]) end
    redis.call('HSET', query, 'until', ARGV[1])
    redis.call('HDEL', query, 'ready')
  end
end
return #KEYS
