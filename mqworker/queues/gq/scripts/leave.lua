#!lua flags=allow-oom
-- leave: delete a consumer's own record.
--
-- KEYS     as in parts/queue.lua
-- ARGV[1]  consumer
-- Returns  1; a repeated call changes nothing
-- Atomic because: half a record would count in one view and not in another.

-- @include clock
-- @include queue

local consumer = ARGV[1]

redis.call('ZREM', births, consumer)
redis.call('ZREM', beats, consumer)
redis.call('HDEL', meta, 'claim:' .. consumer)
return 1
