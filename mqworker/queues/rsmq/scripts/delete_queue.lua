#!lua flags=allow-oom
-- delete_queue: deleteQueue of RSMQ, with all its messages; also of a queue that is only half there.
--
-- KEYS     as in parts/queue.lua; KEYS[4] registry, the set of queue names
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/side_calls.lua
-- Returns  1, or 'queueNotFound' where there was nothing to delete
-- Atomic because: messages that outlive their queue would turn up in the next one of that name.

-- @include clock
-- @include queue
-- @include order
-- @include side_calls

local registry = KEYS[4]
local lane, number = ARGV[1], ARGV[2]

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then return same_answer(earlier) end
local total = redis.call('HLEN', messages) + redis.call('ZCARD', line) -- nothing of another type is deleted
if total == 0 then return 'queueNotFound' end

redis.call('SREM', registry, string.match(line, '[^:]+$'))
redis.call('DEL', messages, line)
return answer(lane, number, 1)
