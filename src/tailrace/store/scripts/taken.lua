-- A value that can be had once: who comes first gets it.
-- KEYS: the value's name. Returns the value, or nil.
local value = redis.call('GET', KEYS[1])
if value then
    redis.call('DEL', KEYS[1])
end
return value
