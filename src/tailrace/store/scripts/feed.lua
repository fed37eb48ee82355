-- Takes one batch of events of one changelog partition of a feed, all or nothing.
--
-- KEYS  position, marks, taken, times, listening, from, recent, then the history of each client of the batch
-- ARGV  lineage, history, offset the caller believes to be stored, offset after this batch, generation of the catalog,
--       'always' or 'listening', 'ordered' or '', how many events are kept of a client, for how many ms,
--       how many identities are remembered, channel prefix, number of marks, number of clients, how many of these, the
--       first ones, are to be tended; per mark: source, version; per client, in the order of histories: its name, how
--       many arguments follow for it, and its events in the order of offsets, each as
--       "generation version offset timestamp value" and, where the feed is not ordered, its identity
--
-- Returns {"applied", replays, kept} or {"moved", stored offset}: nothing was written, seek there and read on; the
-- stored offset is '' where Redis has no position of this lineage.
--
-- Marks move with the position only, so the caller knows them and sends what is above. Where the feed is not ordered, marks
-- do not move, and a replay is known by its identity. What is no replay is kept and published where its client listens,
-- by the clock of Redis; where events are always kept, it is kept in any case.
--
-- To tend a client is to drop what is too old and to move the time at which its history expires.
--
-- Redis does not undo a script that fails half-way, such as for a command that its user lacks. The next try then finds
-- events after the position: their ids refuse a second entry, and it goes on as if it had added them.
--
-- A message is the offset after which its client had nothing else before this event, a space, and the event. Who has
-- seen everything up to that offset misses nothing; who has not knows at once that a message was lost.
--
-- Steps: 1 compare the position, 2 tell replays and look who listens, 3 add events and drop old ones, 4 move marks and
-- position, 5 publish. Everything is read and compared before the first event is added.
--
-- What an event costs is the strings that Lua makes of it and the commands that are called for it: offset, id, one XADD.
-- All else is done once for each client: its length says whether there were events before, and how many are too many.

local position, marks, taken, times = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local listening, from, recent = KEYS[5], KEYS[6], KEYS[7]
local lineage, named, expected, reached, generation = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local always, ordered = ARGV[6] == 'always', ARGV[7] == 'ordered'
local length, age, remembered, channels = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10]), ARGV[11]
local marked, clients, tended = tonumber(ARGV[12]), tonumber(ARGV[13]), tonumber(ARGV[14])
local HISTORIES, MARKS, CHUNK, SAMPLES = 7, 15, 1000, 100
local KEYS, ARGV, call, pcall, tonumber, unpack, min = KEYS, ARGV, redis.call, redis.pcall, tonumber, unpack, math.min
local match = string.match

local stored = call('HMGET', position, 'lineage', 'offset', 'history', 'since', 'floor')
if stored[1] ~= lineage then return {'moved', ''} end
if stored[2] ~= expected or stored[3] ~= named then return {'moved', stored[2]} end
local since, floor = tonumber(stored[4]), stored[5]

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local anybody = call('ZCARD', listening) > 0

-- Of the events from one argument to another, those to be kept, and what is to be remembered.
local known, remember, replays = {}, {}, 0
local function wanted(first, last)
  local found = {}
  for i = first, last, ordered and 1 or 2 do
    local event, identity = ARGV[i], not ordered and ARGV[i + 1]
    local offset = offset_of(event)
    if identity and (known[identity] or call('ZSCORE', taken, identity)) then
      replays = replays + 1
    else
      if identity then
        known[identity] = true
        remember[#remember + 1] = offset
        remember[#remember + 1] = identity
      end
      if tonumber(offset) > since then found[#found + 1] = event end
    end
  end
  return found
end

-- The offset of the last event that is kept for a client or, where there is none, after which its history is complete.
local function before(client, name)
  local last = tonumber(expected) >= 0 and last_up_to(KEYS[HISTORIES + client], expected)
  if last then return last end
  local start = call('HGET', from, name) or (always and floor or stored[4])
  return tonumber(start) < since and stored[4] or start
end

-- Adds an event, unless it is there; returns its offset.
local function add(history, event)
  local version, offset = match(event, '^%d+ (%d+) (%d+)')
  local id = offset .. '-' .. version
  local refused = pcall('XADD', history, id, 'e', event).err
  if refused and tonumber(last_up_to(history) or -1) < tonumber(offset) then
    -- It was not refused for its id: once more, to fail as any command does.
    call('XADD', history, id, 'e', event)
  end
  return offset
end

-- Where all events are to be kept, they stay where they are in the arguments.
local all = ordered and tonumber(expected) >= since
local kept, count, at = {}, 0, MARKS + 2 * marked
for client = 1, clients do
  local name, events, first, last = ARGV[at], ARGV, at + 2, at + 1 + tonumber(ARGV[at + 1])
  at = last + 1
  if not all then
    events = wanted(first, last)
    first, last = 1, #events
  end
  local expiry = anybody and tonumber(call('ZSCORE', listening, name) or 0) or 0
  local heard = expiry > now
  if (heard or always) and last >= first then
    kept[#kept + 1] = {client, name, events, first, last, expiry, heard and before(client, name)}
    count = count + last - first + 1
  end
end

-- The offset that the store had reached so long ago that everything up to it is too old, and the last sample.
local old = call('ZREVRANGEBYSCORE', times, now - age, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
local sample = call('ZREVRANGE', times, 0, 0, 'WITHSCORES')

local latest = {}
for n = 1, #kept do
  local client, name, events, first, last, expiry = unpack(kept[n], 1, 6)
  local history, offset = KEYS[HISTORIES + client], nil
  for i = first, last do offset = add(history, events[i]) end
  local size = call('XLEN', history)
  local new = size == last - first + 1
  drop_above(history, size, length, from, name)
  if new or client <= tended then
    if old[1] then drop_up_to(history, old[1], from, name) end
    if always then
      local start = call('HGET', from, name)
      local lost = new and expired(recent, name, start)
      if lost or not start then call('HSET', from, name, lost or floor) end
      call('PEXPIRE', history, 2 * age)
    else
      call('PEXPIREAT', history, expiry)
    end
  end
  if always then
    latest[2 * n - 1] = offset
    latest[2 * n] = name
  end
end
for first = 1, #latest, CHUNK do call('ZADD', recent, unpack(latest, first, min(first + CHUNK - 1, #latest))) end

if marked > 0 then call('HSET', marks, unpack(ARGV, MARKS, MARKS + 2 * marked - 1)) end
for first = 1, #remember, CHUNK do call('ZADD', taken, unpack(remember, first, min(first + CHUNK - 1, #remember))) end
if #remember > 0 then call('ZREMRANGEBYRANK', taken, 0, -remembered - 1) end
if not sample[1] or now - sample[2] >= age / SAMPLES then
  if old[1] then call('ZREMRANGEBYSCORE', times, '-inf', '(' .. old[2]) end
  call('ZADD', times, now, reached)
end
call('HSET', position, 'offset', reached, 'generation', generation)
for n = 1, #kept do
  local _, name, events, first, last, _, told = unpack(kept[n], 1, 7)
  for i = first, told and last or 0 do
    call('PUBLISH', channels .. name, told .. ' ' .. events[i])
    told = offset_of(events[i])
  end
end
return {'applied', replays, count}
