-- Begins to keep the members of queries in one partition.
--
-- KEYS  position, queries, then per query: query, matches, left
-- ARGV  lineage, offset and generation that the caller believes to be stored, the time in ms since 1970,
--       then per query: id, '1' where it has a clock, when its keys expire
--
-- Returns {"enlisted", "fresh" or "again" per query} or {"moved", stored offset}: nothing was written.
--
-- "again": the query has been complete before, with this generation, and there has been a break, so its members and those
-- that left are kept, and are to be looked at once more. Anything else is begun from nothing. Neither is ready before
-- settle.lua says so.
-- Messages are numbered from the time on, 1024 per ms, or from where they were: numbers rise, and leave a gap, also where a
-- query is begun again that the store has lost.

local position, index = KEYS[1], KEYS[2]
local lineage, expected, generation, now = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local FIRST, WIDTH = 5, 3

local stored = redis.call('HMGET', position, 'lineage', 'offset', 'generation')
if stored[1] ~= lineage then return {'moved', ''} end
if stored[2] ~= expected or stored[3] ~= generation then return {'moved', stored[2]} end

local found, at, latest = {'enlisted'}, 2, 0
for i = FIRST, #ARGV, WIDTH do
  local query, matches, left = KEYS[at + 1], KEYS[at + 2], KEYS[at + 3]
  at = at + 3
  local held = redis.call('HMGET', query, 'lineage', 'generation', 'horizon', 'sent', 'ready')
  if held[1] == lineage and held[2] == generation and held[3] and not held[5] then
    found[#found + 1] = 'again'
  else
    local first = string.format('%.0f', math.max(now * 1024, tonumber(held[4] or '0') + 1))
    redis.call('UNLINK', query, matches, left)
    redis.call('HSET', query, 'lineage', lineage, 'generation', generation, 'clock', ARGV[i + 1], 'sent', first)
    found[#found + 1] = 'fresh'
  end
  redis.call('PEXPIREAT', query, ARGV[i + 2])
  redis.call('PEXPIREAT', matches, ARGV[i + 2])
  redis.call('PEXPIREAT', left, ARGV[i + 2])
  redis.call('SADD', index, ARGV[i])
  latest = math.max(latest, tonumber(ARGV[i + 2]))
end
if redis.call('PTTL', index) < latest - now then redis.call('PEXPIREAT', index, string.format('%.0f', latest)) end
return found
