-- Gives up the rows that are kept back for a build that will not be served.
--
-- KEYS  position, next-rows, next-gone, next-expiries
-- ARGV  lineage, generation that is served, generation to give up
--
-- Returns 1 where they were there. The generation is noted: what still comes of it is not kept, and should it be served
-- after all, the partition is read again from the start.

local position = KEYS[1]
local stored = redis.call('HMGET', position, 'lineage', 'generation', 'next')
if stored[1] ~= ARGV[1] or stored[2] ~= ARGV[2] or stored[3] ~= ARGV[3] then return 0 end
redis.call('UNLINK', KEYS[2], KEYS[3], KEYS[4])
redis.call('HDEL', position, 'next')
redis.call('HSET', position, 'dropped', ARGV[3])
return 1
