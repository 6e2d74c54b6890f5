#!lua flags=allow-oom
-- change_visibility: changeMessageVisibility of RSMQ: hide a message for so long from now; 0 shows it.
--
-- KEYS     as in parts/rsmq_queue.lua
-- ARGV[1]  id; ARGV[2] ms
-- Returns  1, 0 when there is no such message, or 'queueNotFound'
-- Repeatable: the same call again only sets the same time a little later.

-- @include clock
-- @include queue

local id, hidden_ms = ARGV[1], tonumber(ARGV[2])

if not queue_settings() then return 'queueNotFound' end
if not redis.call('ZSCORE', line, id) then return 0 end
redis.call('ZADD', line, digits(now_ms + hidden_ms), id)
return 1
