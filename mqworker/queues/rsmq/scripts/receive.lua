#!lua flags=allow-oom
-- receive: receiveMessage of RSMQ, for one message or several: hide them for a while and count that.
--
-- KEYS     as in parts/queue.lua
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/side_calls.lua
-- ARGV[3]  how many at the most
-- ARGV[4]  ms for which they are hidden, '' for the queue's vt
-- Returns  {{id, message, times received, first received at ms}, ...}, or 'queueNotFound'
-- Numbered because: a copy that comes late would hide and count messages that nobody hears of.

-- @include slices
-- @include clock
-- @include queue
-- @include order
-- @include side_calls
-- @include take

local lane, number, count, hidden_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then return received_before(earlier) end
local queue = queue_settings()
if not queue then return 'queueNotFound' end
local found = visible(count)
if #found > 0 then mark_received(found, queue.total_received, digits(now_ms + (hidden_ms or queue.vt_ms))) end
remember_reply(lane, number, as_received(found))
return found
