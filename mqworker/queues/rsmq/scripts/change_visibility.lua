#!lua flags=allow-oom
-- change_visibility: changeMessageVisibility of RSMQ: hide a message for so long from now; 0 shows it.
--
-- KEYS     as in parts/queue.lua
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/side_calls.lua
-- ARGV[3]  id; ARGV[4] ms
-- Returns  1, 0 when there is no such message, or 'queueNotFound'
-- Numbered because: a copy that comes late would hide what was received by somebody else, or show it.

-- @include clock
-- @include queue
-- @include order
-- @include side_calls

local lane, number, id, hidden_ms = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then return same_answer(earlier) end
if not queue_settings() then return 'queueNotFound' end
if not redis.call('ZSCORE', line, id) then return answer(lane, number, 0) end
redis.call('ZADD', line, digits(now_ms + hidden_ms), id)
return answer(lane, number, 1)
