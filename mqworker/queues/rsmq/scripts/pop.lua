#!lua flags=allow-oom
-- pop: popMessage of RSMQ: receive a message and delete it at once.
--
-- KEYS     as in parts/rsmq_queue.lua
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/rsmq_calls.lua; its reply is remembered whole, for the message
--          is nowhere else any more
-- Returns  {{id, message, times received, first received at ms}} or {}, or 'queueNotFound'
-- Atomic because: between receiving and deleting somebody else could receive it too.

-- @include clock
-- @include queue
-- @include rsmq_calls
-- @include take

local lane, number = ARGV[1], ARGV[2]

local earlier = earlier_reply(lane, number)
if earlier then return { cmsgpack.unpack(earlier) } end
local queue = queue_settings()
if not queue then return 'queueNotFound' end
local found = visible(1)
if #found == 0 then return found end

local id = found[1][1]
redis.call('ZREM', line, id)
redis.call('HDEL', messages, id, id .. ':rc', id .. ':fr')
redis.call('HSET', messages, 'totalrecv', digits(queue.total_received + 1))
remember_reply(lane, number, cmsgpack.pack(found[1]))
return found
