#!lua
-- create_queue: createQueue of RSMQ, whole or not at all.
--
-- KEYS     as in parts/rsmq_queue.lua; KEYS[4] registry, the set of queue names
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/rsmq_calls.lua
-- ARGV[3]  vt, ARGV[4] delay, both in seconds; ARGV[5] maxsize in bytes
-- Returns  1, or 'queueExists' where the hash has a vt, even if a foreign client left it half made
-- Atomic because: a queue that is in one place only is found by some clients and not by others.

-- @include clock
-- @include queue
-- @include order
-- @include rsmq_calls

local registry = KEYS[4]
local lane, number, vt, delay, maxsize = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then return same_answer(earlier) end
if redis.call('HEXISTS', messages, 'vt') == 1 then return answer(lane, number, 'queueExists') end
redis.call('SCARD', registry) -- a foreign type shows itself before the first write

local now_s = digits(math.floor(now_ms / 1000))
redis.call('HSET', messages, 'vt', vt, 'delay', delay, 'maxsize', maxsize, 'created', now_s, 'modified', now_s)
redis.call('SADD', registry, string.match(line, '[^:]+$'))
return answer(lane, number, 1)
