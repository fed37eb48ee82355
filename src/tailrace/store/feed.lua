-- Takes one batch of events of one changelog partition of a feed, all or nothing.
--
-- KEYS  position, marks, taken, times, listening, from, recent, then the stream of each client of the batch
-- ARGV  lineage, begun, offset the caller believes to be stored, offset after this batch, generation of the catalog,
--       'always' or 'listening', 'ordered' or '', how many events are kept of a client, for how many ms,
--       how many identities are remembered, channel prefix, number of clients, the clients in the order of their
--       streams, then per event in the order of offsets: number of its client, its source,
--       "generation version offset timestamp value" and, where the feed is not ordered, its identity
--
-- Returns {"applied", new, kept} or {"moved", stored offset}: nothing was written, seek there and read on; the stored
-- offset is '' where Redis has no position of this lineage.
--
-- An event is a replay where its version is not above the mark of its source. That is enough where the feed is
-- ordered: each record gives one event, and they come in the order of versions. Elsewhere marks do not move, and
-- a replay is known by its identity. What is no replay is kept and published where its client listens, by the clock
-- of Redis; where events are always kept, it is kept in any case.
--
-- Steps: 1 compare the position, 2 tell replays, 3 look who listens, 4 add events and drop old ones, 5 move marks and
-- position, 6 publish. Everything is read and compared before the first write.

local position, marks, taken, times = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local listening, from, recent = KEYS[5], KEYS[6], KEYS[7]
local STREAMS = 7
local lineage, begun, expected, reached, generation = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local always, ordered = ARGV[6] == 'always', ARGV[7] == 'ordered'
local length, age, remembered, channels = ARGV[8], tonumber(ARGV[9]), tonumber(ARGV[10]), ARGV[11]
local clients = tonumber(ARGV[12])
local CLIENTS, WIDTH, CHUNK = 12, ordered and 3 or 4, 1000
local SAMPLES = 100

local stored = redis.call('HMGET', position, 'lineage', 'offset', 'begun', 'since', 'floor')
if stored[1] ~= lineage then return {'moved', ''} end
if stored[2] ~= expected or stored[3] ~= begun then return {'moved', stored[2]} end
local since, floor = tonumber(stored[4]), stored[5]

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Lua numbers are doubles: decimal texts are compared by length, then in two halves that are exact.
local function newer(a, b)
  if #a ~= #b then return #a > #b end
  if #a <= 15 then return tonumber(a) > tonumber(b) end
  local a1, b1 = tonumber(string.sub(a, 1, -16)), tonumber(string.sub(b, 1, -16))
  if a1 ~= b1 then return a1 > b1 end
  return tonumber(string.sub(a, -15)) > tonumber(string.sub(b, -15))
end

local held, moved = {}, {}
local function above_mark(source, version)
  local mark = held[source]
  if mark == nil then
    mark = redis.call('HGET', marks, source)
    held[source] = mark
  end
  return not mark or newer(version, mark)
end

local known = {}
local function unknown(identity)
  if known[identity] or redis.call('ZSCORE', taken, identity) then return false end
  known[identity] = true
  return true
end

local until_when, anybody = {}, redis.call('ZCARD', listening) > 0
local function listens(client)
  if not anybody then return false end
  if until_when[client] == nil then
    until_when[client] = tonumber(redis.call('ZSCORE', listening, ARGV[CLIENTS + client]) or 0)
  end
  return until_when[client] > now
end

local new, remember, kept, touched = 0, {}, {}, {}
for i = CLIENTS + clients + 1, #ARGV, WIDTH do
  local source = ARGV[i + 1]
  local version, offset = string.match(ARGV[i + 2], '^%d+ (%d+) (%d+) ')
  if above_mark(source, version) and (ordered or unknown(ARGV[i + 3])) then
    new = new + 1
    if not ordered then
      remember[#remember + 1] = offset
      remember[#remember + 1] = ARGV[i + 3]
    end
    if ordered then
      held[source] = version
      moved[source] = version
    end
    local client = tonumber(ARGV[i])
    local heard = listens(client)
    if tonumber(offset) > since and (heard or always) then
      kept[#kept + 1] = {i, client, offset, heard}
      touched[client] = offset
    end
  end
end

-- The offset that the store had reached so long ago that everything up to it is too old, and the last sample.
local old = redis.call('ZREVRANGEBYSCORE', times, now - age, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
local last = redis.call('ZREVRANGE', times, 0, 0, 'WITHSCORES')

for n = 1, #kept do
  local i, client, offset = kept[n][1], kept[n][2], kept[n][3]
  redis.call('XADD', KEYS[STREAMS + client], offset .. '-1', 'e', ARGV[i + 2])
end
local names, latest = {}, {}
for client, offset in pairs(touched) do
  local stream, name = KEYS[STREAMS + client], ARGV[CLIENTS + client]
  local dropped = redis.call('XTRIM', stream, 'MAXLEN', length)
  if old[1] then dropped = dropped + redis.call('XTRIM', stream, 'MINID', old[1] .. '-2') end
  if always then
    names[#names + 1] = name
    latest[#latest + 1] = offset
    latest[#latest + 1] = name
    redis.call('PEXPIRE', stream, 2 * age)
  else
    redis.call('PEXPIREAT', stream, until_when[client])
  end
  if dropped > 0 then
    local first = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1][1]
    redis.call('HSET', from, name, string.format('%.0f', string.match(first, '^%d+') - 1))
  end
end
for first = 1, #names, CHUNK do
  local last_name = math.min(first + CHUNK - 1, #names)
  local held = redis.call('HMGET', from, unpack(names, first, last_name))
  for n = first, last_name do
    if not held[n - first + 1] then redis.call('HSET', from, names[n], floor) end
  end
  redis.call('ZADD', recent, unpack(latest, 2 * first - 1, 2 * last_name))
end

for source, version in pairs(moved) do redis.call('HSET', marks, source, version) end
for first = 1, #remember, CHUNK do
  redis.call('ZADD', taken, unpack(remember, first, math.min(first + CHUNK - 1, #remember)))
end
if #remember > 0 then redis.call('ZREMRANGEBYRANK', taken, 0, -remembered - 1) end
if not last[1] or now - last[2] >= age / SAMPLES then
  if old[1] then redis.call('ZREMRANGEBYSCORE', times, '-inf', '(' .. old[2]) end
  redis.call('ZADD', times, now, reached)
end
redis.call('HSET', position, 'offset', reached, 'generation', generation)
for n = 1, #kept do
  if kept[n][4] then
    redis.call('PUBLISH', channels .. ARGV[CLIENTS + kept[n][2]], ARGV[kept[n][1] + 2])
  end
end
return {'applied', new, #kept}
