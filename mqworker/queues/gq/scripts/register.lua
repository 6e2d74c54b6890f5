#!lua flags=allow-oom
-- register: put a consumer at the end of the order of birth.
--
-- KEYS     as in parts/queue.lua
-- ARGV[1]  consumer, a name never used before
-- Returns  its birth number; a repeated call changes nothing
-- Atomic because: a birth without a heartbeat would be a dead consumer that nobody deletes.

-- @include clock
-- @include queue

local consumer = ARGV[1]

local earlier = redis.call('ZSCORE', births, consumer)
if earlier then return tonumber(earlier) end
redis.call('ZCARD', beats)
local birth = redis.call('HINCRBY', meta, 'birth', 1)
redis.call('ZADD', births, birth, consumer)
redis.call('ZADD', beats, digits(now_ms), consumer)
return birth
