-- What scripts know of the history of a client: a stream of its events, <offset>-<version> → "generation version offset
-- timestamp value". Offsets are those of the changelog and give the order; the version, the source offset plus one, says
-- where the event comes from. The scripts that read or drop events begin with these functions.

local function offset_of(event) return string.match(event, '^%d+ %d+ (%d+)') end

-- Above every version: Redis takes numbers up to it.
local HIGHEST = '18446744073709551615'

-- The offset of the last event, or of the last one up to an offset; nil where there is none.
local function last_up_to(history, offset)
  local entry = redis.call('XREVRANGE', history, offset and offset .. '-' .. HIGHEST or '+', '-', 'COUNT', 1)[1]
  return entry and string.match(entry[1], '^%d+')
end

-- Where events are always kept, a history that has expired by itself took some with it that nobody has counted. Of an
-- empty one: the offset of the last event that there was, or nil where it is not after the offset `start`.
local function expired(recent, client, start)
  local last = start and redis.call('ZSCORE', recent, client)
  return last and tonumber(last) > tonumber(start) and string.format('%.0f', last) or nil
end

-- Events are dropped after it was noted in `from` up to which one.

-- Drops the events up to an offset.
local function drop_up_to(history, offset, from, client)
  local last = last_up_to(history, offset)
  if not last then return end
  redis.call('HSET', from, client, last)
  redis.call('XTRIM', history, 'MINID', last .. '-' .. HIGHEST)
end

-- Drops all but the last `length` of `size` events, not too many at once: they are read to know the last one.
local function drop_above(history, size, length, from, client)
  while size > length do
    local count = math.min(size - length, 100)
    local entries = redis.call('XRANGE', history, '-', '+', 'COUNT', count)
    redis.call('HSET', from, client, string.match(entries[count][1], '^%d+'))
    size = size - count
    redis.call('XTRIM', history, 'MAXLEN', size)
  end
end

