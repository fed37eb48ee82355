-- Reads the members of a query in one partition, all or those after an offset, a page of them or all at one moment.
--
-- KEYS  position, rows, query, matches, left
-- ARGV  lineage, generation and offset to go on after, both '' for all members,
--       offset that the page begins after, '' for the first one; how many members it has at most, '' for all;
--       'rows', or 'offsets' to have the members' offsets instead
--
-- Returns {"waiting"}: the query is not complete now, ask again; {"reset", reason}; or
-- {"members", stored offset, generation, number of the last message, {key, row, …}, {key that left, offset, …},
-- offset that the next page begins after, '' where this was the last}.

local position, rows, query, matches, left = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local lineage, generation, after, from, most, what = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local CHUNK = 1000

local stored = redis.call('HMGET', position, 'lineage', 'offset', 'generation')
local held = redis.call('HMGET', query, 'lineage', 'generation', 'ready', 'horizon', 'clock', 'sent', 'until')
if stored[1] ~= lineage or held[1] ~= lineage or held[2] ~= stored[3] or not held[3] then return {'waiting'} end

local gone, first = {}, '-inf'
if after ~= '' then
  if generation ~= stored[3] then return {'reset', 'generation'} end
  if held[5] == '1' then return {'reset', 'clock'} end
  if tonumber(after) < tonumber(held[4]) then return {'reset', 'horizon'} end
  -- Nothing was published in a break: who has a position within has it from a store that has been rolled back since.
  if tonumber(after) > tonumber(held[7]) and tonumber(after) < tonumber(held[3]) then return {'reset', 'break'} end
  if tonumber(after) > tonumber(stored[2]) then return {'reset', 'ahead'} end
  first = '(' .. after
  gone = redis.call('ZRANGEBYSCORE', left, first, '+inf', 'WITHSCORES')
end
if from ~= '' then first = '(' .. from end

-- No two members have the same offset, and a row that changes goes to the end: pages by offset miss nothing.
local count = most == '' and -1 or tonumber(most)
local scores = redis.call('ZRANGEBYSCORE', matches, first, '+inf', 'WITHSCORES', 'LIMIT', 0, count)
local following = count >= 0 and #scores == 2 * count and (scores[#scores] or from) or ''
if what == 'offsets' then return {'members', stored[2], stored[3], held[6], scores, gone, following} end

local found = {}
for at = 1, #scores, 2 * CHUNK do
  local keys = {}
  for n = at, math.min(at + 2 * CHUNK - 1, #scores), 2 do keys[#keys + 1] = scores[n] end
  local values = redis.call('HMGET', rows, unpack(keys))
  for n = 1, #keys do
    if values[n] then
      found[#found + 1] = keys[n]
      found[#found + 1] = values[n]
    end
  end
end
return {'members', stored[2], stored[3], held[6], found, gone, following}
