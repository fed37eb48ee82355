-- Gives up the rows that are kept back for a build that will not be served.
--
-- KEYS  position, next-rows, next-gone, next-expiries
-- ARGV  lineage, generation that is served, generation to give up
--
-- Returns {"abandoned"}; {"none"} if no rows are kept back for that generation; or {"moved", stored offset} if Redis serves
-- another lineage or generation: the stored offset is '' if it has no position of this lineage. The generation is
-- noted: what still comes of it is not kept, and should it be served after all, the partition is read again from the
-- start.

local position = KEYS[1]
local stored = redis.call('HMGET', position, 'lineage', 'generation', 'next', 'offset')
if stored[1] ~= ARGV[1] then return {'moved', ''} end
if stored[2] ~= ARGV[2] then return {'moved', stored[4]} end
if stored[3] ~= ARGV[3] then return {'none'} end
redis.call('UNLINK', KEYS[2], KEYS[3], KEYS[4])
redis.call('HDEL', position, 'next')
redis.call('HSET', position, 'dropped', ARGV[3])
return {'abandoned'}
