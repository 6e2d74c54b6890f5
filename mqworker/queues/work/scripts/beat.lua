#!lua flags=allow-oom
-- beat: a consumer's sign of life. It prolongs every lease the consumer holds, at the cost of one.
-- Only for one that claimed here before: a beat alone makes nobody a consumer of this queue.
--
-- KEYS     as in parts/keys.lua
-- ARGV[1]  consumer
-- Returns  'OK'
-- Repeatable: a second beat is a beat.

-- @include keys
-- @include clock

local consumer = ARGV[1]

redis.call('ZADD', consumers, 'XX', digits(now_ms), consumer)
return redis.status_reply('OK')
