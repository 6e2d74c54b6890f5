#!lua
-- set_attributes: setQueueAttributes of RSMQ; never makes a queue where there is none.
--
-- KEYS     as in parts/rsmq_queue.lua
-- ARGV[1..] name and value of each attribute: vt, delay, maxsize
-- Returns  as in parts/rsmq_attributes.lua, or 'queueNotFound'
-- Repeatable: the same values again, modified a little later.

-- @include clock
-- @include queue
-- @include attributes

if not queue_settings() then return 'queueNotFound' end
redis.call('ZCARD', line) -- a foreign type shows itself before the first write

redis.call('HSET', messages, 'modified', digits(math.floor(now_ms / 1000)), unpack(ARGV))
return attributes()
