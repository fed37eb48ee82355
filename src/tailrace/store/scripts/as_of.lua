-- Notes as of when a partition is complete: every record written before that time has been read.
--
-- KEYS  position
-- ARGV  lineage, offset, time in ms since 1970: what was written before the time has this offset at most
--
-- Returns {"noted"}, or {"moved", stored offset} if the store has not come as far as the offset; the stored offset is ''
-- if Redis has no position of this lineage. Whoever says so says something about the changelog, so it does not matter
-- who does: it holds of a store that has come as far as the offset. The time never goes back.

local stored = redis.call('HMGET', KEYS[1], 'lineage', 'offset', 'as-of')
if stored[1] ~= ARGV[1] then return {'moved', ''} end
if tonumber(stored[2]) < tonumber(ARGV[2]) then return {'moved', stored[2]} end
if not stored[3] or tonumber(stored[3]) < tonumber(ARGV[3]) then redis.call('HSET', KEYS[1], 'as-of', ARGV[3]) end
return {'noted'}
