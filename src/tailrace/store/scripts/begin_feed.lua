-- Makes a partition of a feed ready to be read, unless it already holds this lineage.
--
-- KEYS  position, marks, taken, times, from, recent
-- ARGV  lineage, anew: '1' to begin again even where it holds this lineage, first: the first offset that the changelog
--       still has, start: the offset to read from, since: the offset after which events are kept,
--       target: the offset that must be reached before the partition is whole, generation,
--       grace: for how many ms listeners may register before it is read
--
-- Returns {stored offset, name of the history, ms until it may be read, how many records are gone that were never read,
-- {source, mark, source, mark, …}}.
--
-- Registrations stay: who listens goes on listening. A client without a `from` has everything after `since`. Where
-- retention has removed records before they were read, `since` moves past them, so that every client is told.

local position, marks, taken, times, from, recent = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local lineage, anew, first, start, since = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local stored = redis.call('HMGET', position, 'lineage', 'offset', 'history', 'opens', 'since')

if stored[1] == lineage and anew ~= '1' and stored[3] then
  redis.call('HSET', position, 'generation', ARGV[7])
  local wait = math.max(0, tonumber(stored[4] or '0') - now)
  local gone = first - 1 - tonumber(stored[2])
  local taken_up_to = redis.call('HGETALL', marks)
  if gone <= 0 then return {stored[2], stored[3], wait, 0, taken_up_to} end
  local passed = string.format('%.0f', first - 1)
  redis.call('HSET', position, 'offset', passed)
  if first - 1 > tonumber(stored[5]) then redis.call('HSET', position, 'since', passed) end
  return {passed, stored[3], wait, gone, taken_up_to}
end

local named = string.format('%.0f', time[1] * 1000000 + time[2])
local offset = string.format('%.0f', start - 1)
redis.call('UNLINK', position, marks, taken, times, from, recent)
redis.call('HSET', position, 'lineage', lineage, 'offset', offset, 'target', ARGV[6], 'generation', ARGV[7],
  'since', since, 'floor', since, 'history', named, 'opens', string.format('%.0f', now + ARGV[8]))
return {offset, named, tonumber(ARGV[8]), 0, {}}
