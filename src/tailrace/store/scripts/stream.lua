-- Writes what a stream is from now on, and tells those who hold its connections.
--
-- KEYS  stream
-- ARGV  the revision that the caller has seen, '' where there was none; the stream as JSON, '' where it has ended;
--       for how many ms it is kept
--
-- Returns the new revision, or 0: it was changed meanwhile, and nothing was written.
--
-- A stream that has ended is kept as such for its time, so that who holds a connection to it and missed the message
-- does not take it for lost.

local stream = KEYS[1]
local seen, text, kept = ARGV[1], ARGV[2], ARGV[3]

local revision = redis.call('HGET', stream, 'revision')
if (revision or '') ~= seen then return 0 end
local following = tonumber(revision or '0') + 1
redis.call('HSET', stream, 'revision', following, 'stream', text)
redis.call('PEXPIRE', stream, kept)
redis.call('PUBLISH', stream, following)
return following
