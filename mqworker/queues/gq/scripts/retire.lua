#!lua flags=allow-oom
-- retire: delete the record of a consumer whose process ended, without waiting for its silence to be long enough.
--
-- KEYS     as in parts/queue.lua
-- ARGV[1]  consumer
-- ARGV[2]  'reclaim' to queue again what it held, 'leave' to leave it consumed
-- ARGV[3]  retries allowed, '' without limit
-- Returns  1; a repeated call finds nothing
-- Atomic because: what a deleted consumer held could no longer be found.

-- @include clock
-- @include queue
-- @include end
-- @include reclaim

local consumer, fate, max_retries = ARGV[1], ARGV[2], tonumber(ARGV[3])

if fate == 'reclaim' then reclaim_from(consumer, max_retries) end
delete_consumer(consumer)
return 1
