-- Makes a partition ready to be restored from the start of its changelog, unless it already holds this lineage.
--
-- KEYS  rows, gone, position
-- ARGV  lineage, target: the offset that must be reached before the partition is whole,
--       anew: '1' to empty it even where it holds this lineage
--
-- Returns the stored offset: -1 where the partition was emptied just now.

local rows, gone, position = KEYS[1], KEYS[2], KEYS[3]
local stored = redis.call('HMGET', position, 'lineage', 'offset')
if stored[1] == ARGV[1] and ARGV[3] ~= '1' then return stored[2] end
redis.call('UNLINK', rows, gone)
redis.call('HSET', position, 'lineage', ARGV[1], 'offset', '-1', 'target', ARGV[2])
return '-1'
