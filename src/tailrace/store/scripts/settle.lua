-- Says that queries are complete in one partition: all their members are known, up to the stored offset.
--
-- KEYS  position, then per query: query
-- ARGV  lineage, offset and generation that the caller believes to be stored, channel prefix, the time in ms since 1970,
--       then per query: id
--
-- Returns {"settled", ids of queries whose keys are lost…} or {"moved", stored offset}: nothing was written.
--
-- A query that was begun from nothing gets this offset as its horizon: what left before it was not noted. For another one,
-- a break ends here.

local position = KEYS[1]
local lineage, expected, generation, channels, now = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local FIRST = 6

local stored = redis.call('HMGET', position, 'lineage', 'offset', 'generation')
if stored[1] ~= lineage then return {'moved', ''} end
if stored[2] ~= expected or stored[3] ~= generation then return {'moved', stored[2]} end

local found = {'settled'}
for i = FIRST, #ARGV do
  local query = KEYS[i - FIRST + 2]
  local held = redis.call('HMGET', query, 'lineage', 'generation', 'horizon', 'until')
  if held[1] == lineage and held[2] == generation then
    local before = held[4] or expected
    redis.call('HSET', query, 'ready', expected, 'until', before, 'horizon', held[3] or expected)
    local number = string.format('%.0f', redis.call('HINCRBY', query, 'sent', 1))
    local message = ' 1 ready ' .. generation .. ' ' .. before .. ' ' .. expected .. ' ' .. now .. ' 0 '
    redis.call('PUBLISH', channels .. ARGV[i], number .. message)
  else
    found[#found + 1] = ARGV[i]
  end
end
return found
