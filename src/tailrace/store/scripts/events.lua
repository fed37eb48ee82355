-- Reads a page of a client's events, with what must be known to trust it, at one moment.
--
-- KEYS  position, listening, from, recent, the history of the client
-- ARGV  lineage, name of the history, client, 'always' or 'listening', the id to read from, at most how many
--
-- Returns {"events", offset, offset after which the history is complete, event, event, …}; {"begun", name}: the
-- history has another name; {"unknown"}: Redis has no position of this lineage; or {"lapsed"}: the client is not
-- registered any more, and what it has missed is not known.

local position, listening, from, recent, history = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local lineage, named, client, always = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == 'always'

local stored = redis.call('HMGET', position, 'lineage', 'offset', 'since', 'floor', 'history')
if stored[1] ~= lineage or not stored[5] then return {'unknown'} end
if stored[5] ~= named then return {'begun', stored[5]} end

local first = redis.call('HGET', from, client)
if always then
  first = redis.call('EXISTS', history) == 0 and expired(recent, client, first) or first or stored[4]
else
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  if tonumber(redis.call('ZSCORE', listening, client) or 0) <= now then return {'lapsed'} end
  first = first or stored[3]
end
if tonumber(stored[3]) > tonumber(first) then first = stored[3] end

local found = {'events', stored[2], first}
local entries = redis.call('XRANGE', history, ARGV[5], '+', 'COUNT', ARGV[6])
for n = 1, #entries do found[#found + 1] = entries[n][2][2] end
return found
