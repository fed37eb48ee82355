-- Reads the members of a query in one partition, all or those after an offset, at one moment.
--
-- KEYS  position, rows, query, matches, left
-- ARGV  lineage, generation and offset to go on after; both '' for all members
--
-- Returns {"waiting"}: the query is not complete now, ask again; {"reset", reason}; or
-- {"members", stored offset, generation, number of the last message, {key, row, …}, {key that left, offset, …}}.

local position, rows, query, matches, left = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local lineage, generation, after = ARGV[1], ARGV[2], ARGV[3]
local CHUNK = 1000

local stored = redis.call('HMGET', position, 'lineage', 'offset', 'generation')
local held = redis.call('HMGET', query, 'lineage', 'generation', 'ready', 'horizon', 'clock', 'sent', 'until')
if stored[1] ~= lineage or held[1] ~= lineage or held[2] ~= stored[3] or not held[3] then return {'waiting'} end

local keys, gone
if after == '' then
  keys, gone = redis.call('ZRANGE', matches, 0, -1), {}
else
  if generation ~= stored[3] then return {'reset', 'generation'} end
  if held[5] == '1' then return {'reset', 'clock'} end
  if tonumber(after) < tonumber(held[4]) then return {'reset', 'horizon'} end
  -- Nothing was published in a break: who has a position within has it from a store that has been rolled back since.
  if tonumber(after) > tonumber(held[7]) and tonumber(after) < tonumber(held[3]) then return {'reset', 'break'} end
  if tonumber(after) > tonumber(stored[2]) then return {'reset', 'ahead'} end
  keys = redis.call('ZRANGEBYSCORE', matches, '(' .. after, '+inf')
  gone = redis.call('ZRANGEBYSCORE', left, '(' .. after, '+inf', 'WITHSCORES')
end

local found = {}
for first = 1, #keys, CHUNK do
  local last = math.min(first + CHUNK - 1, #keys)
  local values = redis.call('HMGET', rows, unpack(keys, first, last))
  for n = first, last do
    local value = values[n - first + 1]
    if value then
      found[#found + 1] = keys[n]
      found[#found + 1] = value
    end
  end
end
return {'members', stored[2], stored[3], held[6], found, gone}
