-- Says that queries are complete in one partition: all their members are known, up to the stored offset.
--
-- KEYS  position, then per query: query
-- ARGV  lineage, offset and generation that the caller believes to be stored, channel prefix,
--       message without its number, then per query: id
--
-- Returns {"settled", ids of queries whose keys are lost…} or {"moved", stored offset}: nothing was written.
--
-- A query that was begun from nothing gets this offset as its horizon: what left before it was not noted.

local position = KEYS[1]
local lineage, expected, generation, channels, message = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local FIRST = 6

local stored = redis.call('HMGET', position, 'lineage', 'offset', 'generation')
if stored[1] ~= lineage then return {'moved', ''} end
if stored[2] ~= expected or stored[3] ~= generation then return {'moved', stored[2]} end

local found = {'settled'}
for i = FIRST, #ARGV do
  local query = KEYS[i - FIRST + 2]
  local held = redis.call('HMGET', query, 'lineage', 'generation')
  if held[1] == lineage and held[2] == generation then
    redis.call('HSETNX', query, 'horizon', expected)
    redis.call('HSET', query, 'ready', expected)
    local number = redis.call('HINCRBY', query, 'sent', 1)
    redis.call('PUBLISH', channels .. ARGV[i], string.format('%.0f', number) .. ' 1 ' .. message)
  else
    found[#found + 1] = ARGV[i]
  end
end
return found
