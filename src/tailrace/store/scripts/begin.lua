-- Makes a partition ready to be restored from the start of its changelog, unless it already holds this lineage.
--
-- KEYS  position, then every other key of the partition
-- ARGV  lineage, target: the offset that must be reached before the partition is whole,
--       anew: '1' to empty it even where it holds this lineage, generation to restore,
--       the time in ms since 1970: an emptied partition is complete as of now, because all of its changelog is to come
--
-- Returns {stored offset, stored generation}; the offset is -1 where the partition was emptied just now.
-- A position from before generations were noted gets the one given.

local position = KEYS[1]
local stored = redis.call('HMGET', position, 'lineage', 'offset')
if stored[1] == ARGV[1] and ARGV[3] ~= '1' then
  redis.call('HSETNX', position, 'generation', ARGV[4])
  return {stored[2], redis.call('HGET', position, 'generation')}
end
redis.call('UNLINK', unpack(KEYS))
redis.call('HSET', position, 'lineage', ARGV[1], 'offset', '-1', 'target', ARGV[2], 'generation', ARGV[4],
  'as-of', ARGV[5])
return {'-1', ARGV[4]}
