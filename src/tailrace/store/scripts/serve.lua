-- Hands a partition over to a later generation, all at once: its rows were kept back in next-rows until now.
--
-- KEYS  position, rows, gone, expiries, next-rows, next-gone, next-expiries, old-rows
-- ARGV  lineage, generation to serve, since: the offset that must be stored before
--
-- Returns {"served"}: the partition serves this generation, or a later one; {"waiting"}: not before the offset is
-- stored and old-rows is empty; or {"moved", stored offset}: read on from there, '' where Redis has no position of this
-- lineage.
--
-- A build that has no rows kept back here has none in this partition. Only where rows of it were given up, or made
-- way for a still later build, is that not known: then the partition is emptied and read again from the start.

local position, rows, gone, expiries = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local next_rows, next_gone, next_expiries, old_rows = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local lineage, generation, since = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local stored = redis.call('HMGET', position, 'lineage', 'offset', 'generation', 'next', 'dropped')
if stored[1] ~= lineage then return {'moved', ''} end
if not stored[3] then return {'moved', stored[2]} end
if tonumber(stored[3]) >= generation then return {'served'} end
if tonumber(stored[2]) < since or redis.call('EXISTS', old_rows) == 1 then return {'waiting'} end

local next, dropped = tonumber(stored[4] or '-1'), tonumber(stored[5] or '-1')
if next > generation or dropped >= generation then
  redis.call('UNLINK', unpack(KEYS))
  redis.call('HSET', position, 'lineage', lineage, 'offset', '-1', 'target', stored[2], 'generation', ARGV[2])
  return {'moved', '-1'}
end

if next ~= generation then redis.call('UNLINK', next_rows, next_gone, next_expiries) end
redis.call('UNLINK', gone, expiries)
if redis.call('EXISTS', rows) == 1 then redis.call('RENAME', rows, old_rows) end
if redis.call('EXISTS', next_rows) == 1 then redis.call('RENAME', next_rows, rows) end
if redis.call('EXISTS', next_gone) == 1 then redis.call('RENAME', next_gone, gone) end
if redis.call('EXISTS', next_expiries) == 1 then redis.call('RENAME', next_expiries, expiries) end
redis.call('HSET', position, 'generation', ARGV[2])
-- What is gone in this build is all there: nothing of it was forgotten.
redis.call('HDEL', position, 'next', 'pruned', 'mark')
return {'served'}
