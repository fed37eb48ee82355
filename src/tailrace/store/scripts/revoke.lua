-- Notes revocations, forgets those that are over, and tells every gateway.
-- KEYS: the hash of revocations.
-- ARGV: now in ms since 1970, then name, when it was revoked and when that is over, in ms, for each.
-- A revocation only ever reaches further. Returns how many were new.
local now = tonumber(ARGV[1])
if (#ARGV - 1) % 3 ~= 0 then
    return redis.error_reply('ERR expected a name and two times for each revocation')
end
local held = redis.call('HGETALL', KEYS[1])
local known, over, last = {}, {}, now
for i = 1, #held, 2 do
    local at, till = string.match(held[i + 1], '^(%d+) (%d+)$')
    at, till = tonumber(at), tonumber(till)
    if not till or till <= now then
        over[#over + 1] = held[i]
    else
        known[held[i]] = { at, till }
        last = math.max(last, till)
    end
end
local new = 0
for _, name in ipairs(over) do
    redis.call('HDEL', KEYS[1], name)
end
for i = 2, #ARGV, 3 do
    local name, at, till = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
    local before = known[name]
    if till > now and (not before or at > before[1] or till > before[2]) then
        if before then
            at, till = math.max(at, before[1]), math.max(till, before[2])
        end
        redis.call('HSET', KEYS[1], name, string.format('%.0f %.0f', at, till))
        known[name] = { at, till }
        last = math.max(last, till)
        new = new + 1
    end
end
if redis.call('EXISTS', KEYS[1]) == 1 then
    redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', last))
end
if new > 0 then
    redis.call('PUBLISH', KEYS[1], tostring(new))
end
return new
