-- Forgets tombstones of one partition that are older than a time, and notes up to which offset it may have done so.
--
-- KEYS  position, gone
-- ARGV  lineage, generation that is served, the time in ms since 1970, how long tombstones are kept, in ms,
--       the pipeline's last finished batch, '' where it is not known; then the keys to forget
--
-- Returns {"pruned", horizon, when it may move next, in ms since 1970, number of tombstones forgotten}; {"restoring"} if
-- the partition is not whole; or {"moved", stored offset} if Redis serves another lineage or generation: the stored offset
-- is '' if it has no position of this lineage. The horizon is -1 where nothing was forgotten yet.
--
-- A mark says how far the partition was at a moment. When a mark has stood for as long as tombstones are kept, every
-- tombstone up to it is at least as old: the horizon moves there, and the next mark is made. It moves only where two
-- batches of the pipeline have finished meanwhile. The first of them may have begun before the mark; the second has
-- not, so that whatever stands before the mark is of a finished batch and can't be written again.
-- The horizon is noted before a tombstone goes: who reads that one is missing reads why.

local position, gone = KEYS[1], KEYS[2]
local lineage, generation, now, keep, batch = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local FIRST = 6

local stored = redis.call('HMGET', position, 'lineage', 'generation', 'offset', 'target', 'pruned', 'mark')
if stored[1] ~= lineage then return {'moved', ''} end
if stored[2] ~= generation then return {'moved', stored[3]} end
local offset, target = tonumber(stored[3]), tonumber(stored[4])
if offset < target then return {'restoring'} end

-- Offset, time and batch of the mark.
local horizon, mark = tonumber(stored[5] or '-1'), {}
for number in string.gmatch(stored[6] or '', '%-?%d+') do mark[#mark + 1] = tonumber(number) end
local drop = {}
if #ARGV >= FIRST then
  local keys = {unpack(ARGV, FIRST)}
  local held = redis.call('HMGET', gone, unpack(keys))
  for n = 1, #keys do
    local at = held[n] and tonumber(string.match(held[n], '^%d+ %d+ (%d+)'))
    if at and at <= horizon then drop[#drop + 1] = keys[n] end
  end
end

if batch and #mark == 0 then
  mark = {offset, now, batch}
  redis.call('HSET', position, 'mark', string.format('%.0f %.0f %.0f', unpack(mark)))
elseif batch and now >= mark[2] + keep and batch >= mark[3] + 2 then
  horizon = math.max(horizon, mark[1])
  mark = {offset, now, batch}
  redis.call('HSET', position, 'pruned', string.format('%.0f', horizon))
  redis.call('HSET', position, 'mark', string.format('%.0f %.0f %.0f', unpack(mark)))
end
if #drop > 0 then redis.call('HDEL', gone, unpack(drop)) end
return {'pruned', string.format('%.0f', horizon), string.format('%.0f', (mark[2] or now) + keep), #drop}
