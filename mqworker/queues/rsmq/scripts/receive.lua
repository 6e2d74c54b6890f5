#!lua flags=allow-oom
-- receive: receiveMessage of RSMQ, for one message or several: hide them for a while and count that.
--
-- KEYS     as in parts/rsmq_queue.lua
-- ARGV[1]  how many at the most
-- ARGV[2]  ms for which they are hidden, '' for the queue's vt
-- Returns  {{id, message, times received, first received at ms}, ...}, or 'queueNotFound'
-- Not repeatable: what a lost reply held stays hidden until its time is over, and is then received again, counted
--          once more. At least once is what RSMQ promises.

-- @include clock
-- @include queue
-- @include take

local count, hidden_ms = tonumber(ARGV[1]), tonumber(ARGV[2])

local queue = queue_settings()
if not queue then return 'queueNotFound' end
local found = visible(count)
if #found > 0 then mark_received(found, queue.total_received, digits(now_ms + (hidden_ms or queue.vt_ms))) end
return found
