-- Drops what is kept for clients that listen no more, or whose events are all too old.
--
-- KEYS  position, listening, leases, from, recent, times, then the history of each client
-- ARGV  name of the history, 'always' or 'listening', age in ms, then the clients in the order of their histories
--
-- Returns how many clients lost their registration or their events. Who has registered again, or got an event, since
-- the caller looked stays as it is.

local position, listening, leases, from = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local recent, times, HISTORIES = KEYS[5], KEYS[6], 6
local always, CLIENTS = ARGV[2] == 'always', 3
if redis.call('HGET', position, 'history') ~= ARGV[1] then return 0 end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local old = redis.call('ZREVRANGEBYSCORE', times, now - ARGV[3], '-inf', 'LIMIT', 0, 1)[1]

local dropped = 0
for n = 1, #KEYS - HISTORIES do
  local client, history = ARGV[CLIENTS + n], KEYS[HISTORIES + n]
  local expiry = redis.call('ZSCORE', listening, client)
  local lapsed = expiry and tonumber(expiry) <= now
  if lapsed then
    redis.call('ZREM', listening, client)
    redis.call('HDEL', leases, client)
    if not always then
      redis.call('HDEL', from, client)
      redis.call('UNLINK', history)
    end
  end
  local last = always and old and redis.call('ZSCORE', recent, client)
  local aged = last and tonumber(last) <= tonumber(old)
  if aged then
    redis.call('ZREM', recent, client)
    redis.call('HDEL', from, client)
    redis.call('UNLINK', history)
    local floor = redis.call('HGET', position, 'floor')
    if tonumber(last) > tonumber(floor) then
      redis.call('HSET', position, 'floor', string.format('%.0f', tonumber(last)))
    end
  end
  if lapsed or aged then dropped = dropped + 1 end
end
return dropped
