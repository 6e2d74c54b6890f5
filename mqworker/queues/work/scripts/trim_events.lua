#!lua flags=allow-oom
-- trim_events: drop the blocks of a stream that were archived.
--
-- KEYS[1]  events
-- ARGV[1]  id of the oldest block to stay
-- Returns  how many were dropped
-- Repeatable: what was dropped is not there any more.

local events = KEYS[1]
local oldest_kept = ARGV[1]

return redis.call('XTRIM', events, 'MINID', '=', oldest_kept)
