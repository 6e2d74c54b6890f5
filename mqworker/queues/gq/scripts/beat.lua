#!lua flags=allow-oom
-- beat: a consumer's sign of life. It does not bring back one that was given up.
--
-- KEYS     as in parts/queue.lua
-- ARGV[1]  consumer
-- ARGV[2]  ms of silence that mean death
-- Returns  1 alive, 0 deleted, or silent for too long
-- Atomic because: it must not be deleted between the look and the beat.

-- @include clock
-- @include queue
-- @include consumers

local consumer, dead_after_ms = ARGV[1], tonumber(ARGV[2])

if not is_alive(consumer, dead_after_ms) then return 0 end
redis.call('ZADD', beats, 'XX', digits(now_ms), consumer)
return 1
