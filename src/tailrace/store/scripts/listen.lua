-- Registers a client of a feed as listening through a gateway, refreshes that, or ends it.
--
-- KEYS  position, listening, leases, from, times, recent, the history of the client
-- ARGV  lineage, name of the history, client, gateway, lease in ms, hold in ms, 'always' or 'listening', age in ms,
--       'listen' or 'leave'
--
-- Returns {"listening", expiry, offset, target, offset after which the history is complete, generation, offset of the
-- last event of the history, or the one after which it is complete where it has none}; or {"begun", name}: nothing was
-- done, the history has another name; or {"unknown", expiry}: it is registered, but Redis has no position of this lineage
-- yet.
--
-- A registration lasts as long as that of any gateway: max(hold, lease) from now on, and hold after the last one has
-- left. A client that was not registered begins at what the store has reached. Where events are always kept, it begins
-- with what is there.

local position, listening, leases, from = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local times, recent, history = KEYS[5], KEYS[6], KEYS[7]
local lineage, named, client, gateway = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local lease, hold, always, age = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7] == 'always', tonumber(ARGV[8])
local leaving = ARGV[9] == 'leave'

local stored = redis.call('HMGET', position, 'lineage', 'offset', 'target', 'generation', 'since', 'floor', 'history')
local known = stored[1] == lineage and stored[7]
if known and stored[7] ~= named then return {'begun', stored[7]} end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local registered = tonumber(redis.call('ZSCORE', listening, client) or 0) > now

local expiry = now + (leaving and hold or math.max(hold, lease))
local others = {}
for name, at in string.gmatch(redis.call('HGET', leases, client) or '', '(%S+) (%d+)') do
  if name ~= gateway and tonumber(at) > now then
    others[#others + 1] = name .. ' ' .. at
    expiry = math.max(expiry, tonumber(at))
  end
end
if not leaving then others[#others + 1] = gateway .. ' ' .. string.format('%.0f', now + math.max(hold, lease)) end
local until_when = string.format('%.0f', expiry)

-- Who is not registered has nothing to leave.
if registered or not leaving then
  if #others > 0 then
    redis.call('HSET', leases, client, table.concat(others, ' '))
  else
    redis.call('HDEL', leases, client)
  end
  redis.call('ZADD', listening, until_when, client)
end
if not known then return {'unknown', until_when} end

local since, floor = stored[5], stored[6]
local function later(a, b) return tonumber(a) > tonumber(b) and a or b end

if always then
  local empty = redis.call('EXISTS', history) == 0
  local lost = empty and expired(recent, client, redis.call('HGET', from, client))
  if lost then redis.call('HSET', from, client, lost) end
elseif not registered and not leaving then
  redis.call('UNLINK', history)
  redis.call('HSET', from, client, stored[2])
elseif registered then
  redis.call('PEXPIREAT', history, until_when)
end

local old = redis.call('ZREVRANGEBYSCORE', times, now - age, '-inf', 'LIMIT', 0, 1)
if old[1] then drop_up_to(history, old[1], from, client) end

local start = later(redis.call('HGET', from, client) or (always and floor or since), since)
local last = last_up_to(history) or start
return {'listening', until_when, stored[2], stored[3], start, stored[4], last}
