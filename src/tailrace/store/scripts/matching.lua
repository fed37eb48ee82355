-- Applies one batch and says which rows have entered, changed in or left queries, all or nothing.
--
-- The function `apply`, from apply.lua, stands before this text.
--
-- KEYS  those of apply.lua, then per query: query, matches, left
-- ARGV  how many keys and how many arguments are apply.lua's, its arguments, then
--       lineage, generation that the queries were evaluated for, channel prefix, at most how many keys are remembered
--       as left, how many events;
--       per event: "row" or "gone", key, offset, message without its number;
--       per query: id, mode, when its keys expire, the numbers of its events, separated by spaces
--
-- Returns what apply.lua does, with {queries whose keys are lost} added to "applied", and how many messages were made.
-- {"moved", …} also where another generation is served.
--
-- mode: "quiet" publishes nothing, because nobody has read the query yet; "unsettled" publishes with 0 before the
-- message, "settled" with 1 (see store/message.py).
--
-- A row that the query already holds at this offset, and a key that it does not hold, change nothing: so a scan may meet
-- a row twice, and one that was not met yet may leave.

local key_count, arg_count = tonumber(ARGV[1]), tonumber(ARGV[2])
local head = 2 + arg_count
local lineage, generation, channels = ARGV[head + 1], ARGV[head + 2], ARGV[head + 3]
local most, event_count = tonumber(ARGV[head + 4]), tonumber(ARGV[head + 5])
local EVENT, QUERY = 4, 4
local first_event = head + 6
local first_query = first_event + event_count * EVENT

local function part(list, first, count)
  local found = {}
  for n = 1, count do found[n] = list[first + n - 1] end
  return found
end

local stored = redis.call('HMGET', KEYS[1], 'lineage', 'offset', 'generation')
if stored[1] == lineage and stored[3] ~= generation then return {'moved', stored[2]} end

local queries, lost = {}, {}
local at = key_count
for i = first_query, #ARGV, QUERY do
  local query, matches, left = KEYS[at + 1], KEYS[at + 2], KEYS[at + 3]
  at = at + 3
  local held = redis.call('HMGET', query, 'lineage', 'generation', 'clock', 'horizon')
  if held[1] == lineage and held[2] == generation then
    queries[#queries + 1] = {i, query, matches, left, held[3] == '1', held[4]}
  else
    lost[#lost + 1] = ARGV[i]
  end
end

local result = apply(part(KEYS, 1, key_count), part(ARGV, 3, arg_count))
if result[1] ~= 'applied' then return result end

-- Who resumes below the horizon is not told all that has left since.
local function forget(left, query, horizon)
  local over = redis.call('ZCARD', left) - most
  if over <= 0 then return end
  local last = redis.call('ZRANGE', left, over - 1, over - 1, 'WITHSCORES')[2]
  redis.call('ZREMRANGEBYSCORE', left, '-inf', last)
  if horizon and tonumber(horizon) < tonumber(last) then redis.call('HSET', query, 'horizon', last) end
end

local made = 0
for n = 1, #queries do
  local i, query, matches, left, clock, horizon = unpack(queries[n], 1, 6)
  local id, mode, expires = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local messages, has_left = {}, redis.call('EXISTS', left) == 1
  for number in string.gmatch(ARGV[i + 3], '%d+') do
    local e = first_event + (tonumber(number) - 1) * EVENT
    local key, offset = ARGV[e + 1], ARGV[e + 2]
    if ARGV[e] == 'row' then
      local held = redis.call('ZSCORE', matches, key)
      if not held or tonumber(held) ~= tonumber(offset) then
        redis.call('ZADD', matches, offset, key)
        if not held and has_left then redis.call('ZREM', left, key) end
        messages[#messages + 1] = ARGV[e + 3]
      end
    elseif redis.call('ZREM', matches, key) == 1 then
      -- The time at which a row leaves by the clock is no offset: such queries are not resumed.
      if not clock then
        redis.call('ZADD', left, offset, key)
        has_left = true
      end
      messages[#messages + 1] = ARGV[e + 3]
    end
  end
  if #messages > 0 then
    redis.call('PEXPIREAT', matches, expires)
    if has_left then
      redis.call('PEXPIREAT', left, expires)
      forget(left, query, horizon)
    end
    if mode ~= 'quiet' then
      local before = redis.call('HINCRBY', query, 'sent', #messages) - #messages
      local settled = mode == 'settled' and ' 1 ' or ' 0 '
      for m = 1, #messages do
        redis.call('PUBLISH', channels .. id, string.format('%.0f', before + m) .. settled .. messages[m])
      end
      made = made + #messages
    end
  end
end
result[4], result[5] = lost, made
return result
