-- Finds clients of one partition of a feed that listen no more, or whose events are all too old.
--
-- KEYS  listening, times, recent
-- ARGV  age in ms, at most how many of each
--
-- Returns the clients. `lapse` drops what is kept for them: its keys are known only then.

local listening, times, recent = KEYS[1], KEYS[2], KEYS[3]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local found = redis.call('ZRANGEBYSCORE', listening, '-inf', now, 'LIMIT', 0, ARGV[2])
local old = redis.call('ZREVRANGEBYSCORE', times, now - ARGV[1], '-inf', 'LIMIT', 0, 1)[1]
if old then
  for _, client in ipairs(redis.call('ZRANGEBYSCORE', recent, '-inf', old, 'LIMIT', 0, ARGV[2])) do
    found[#found + 1] = client
  end
end
return found
