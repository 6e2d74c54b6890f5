#!lua flags=allow-oom
-- forget_tick: drop what a queue noted of a schedule that was deleted, or calls another queue now.
--
-- KEYS[1]  ticks hash: schedule -> its newest tick
-- ARGV[1]  name, ARGV[2] when it was deleted, ms
-- Returns  1 forgotten, 0 there is a later tick: it was made again
-- Atomic because: a tick that is noted in between must stay.
-- Repeatable: there is nothing to forget the second time.

local ticks = KEYS[1]
local name, deleted_ms = ARGV[1], tonumber(ARGV[2])

local newest = tonumber(redis.call('HGET', ticks, name) or 0) or 0
if newest > deleted_ms then return 0 end
return redis.call('HDEL', ticks, name)
