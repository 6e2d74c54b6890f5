#!lua flags=no-writes,allow-oom
-- view: a consumer's place among the active.
--
-- KEYS     as in parts/queue.lua
-- ARGV[1]  consumer
-- ARGV[2]  ms of silence that mean death
-- Returns  {index from 0, how many are active}, {} when it is not active
-- Atomic because: index and count must belong together.

-- @include clock
-- @include queue
-- @include consumers

local consumer, dead_after_ms = ARGV[1], tonumber(ARGV[2])

local index, total = view_of(consumer, dead_after_ms)
return index and { index, total } or {}
