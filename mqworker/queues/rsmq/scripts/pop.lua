#!lua flags=allow-oom
-- pop: popMessage of RSMQ: receive a message and delete it at once.
--
-- KEYS     as in parts/queue.lua
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/side_calls.lua; its reply is remembered whole, for the message
--          is nowhere else any more
-- Returns  {{id, message, times received, first received at ms}} or {}, or 'queueNotFound'
-- Atomic because: between receiving and deleting somebody else could receive it too.

-- @include slices
-- @include clock
-- @include queue
-- @include order
-- @include side_calls
-- @include take

local lane, number = ARGV[1], ARGV[2]

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then return same_answer(earlier) end
local queue = queue_settings()
if not queue then return 'queueNotFound' end
local found = visible(1)
if #found == 0 then return answer(lane, number, found) end

local id = found[1][1]
redis.call('ZREM', line, id)
redis.call('HDEL', messages, id, id .. ':rc', id .. ':fr')
redis.call('HSET', messages, 'totalrecv', digits(queue.total_received + 1))
return answer(lane, number, found)
