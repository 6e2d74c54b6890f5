#!lua
-- create_queue: createQueue of RSMQ, whole or not at all. One that a foreign client left half made is completed:
-- to us there is no such queue, to that client there is one, so nobody else would ever mend it.
--
-- KEYS     as in parts/queue.lua; KEYS[4] registry, the set of queue names
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/side_calls.lua
-- ARGV[3]  vt, ARGV[4] delay, both in seconds; ARGV[5] maxsize in bytes
-- ARGV[6]  'anew', or 'mend' to make none where nothing of it is there
-- Returns  1, 'queueExists', or 'queueNotFound' where there is nothing to mend
-- Atomic because: a queue that is in one place only is found by some clients and not by others.

-- @include clock
-- @include queue
-- @include order
-- @include side_calls

local registry = KEYS[4]
local lane, number, vt, delay, maxsize, how = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then return same_answer(earlier) end
if queue_settings() then return answer(lane, number, 'queueExists') end
if how == 'mend' and redis.call('EXISTS', messages) == 0 then return 'queueNotFound' end
redis.call('SCARD', registry) -- a foreign type shows itself before the first write

local now_s = digits(math.floor(now_ms / 1000))
local given = { vt = vt, delay = delay, maxsize = maxsize, created = now_s, modified = now_s }
for name, value in pairs(given) do
  if not decimal(redis.call('HGET', messages, name)) then redis.call('HSET', messages, name, value) end
end
redis.call('SADD', registry, string.match(line, '[^:]+$'))
return answer(lane, number, 1)
