#!lua
-- set_attributes: setQueueAttributes of RSMQ; never makes a queue where there is none.
--
-- KEYS     as in parts/queue.lua
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/side_calls.lua
-- ARGV[3..] name and value of each attribute: vt, delay, maxsize
-- Returns  as in parts/attributes.lua, or 'queueNotFound'
-- Numbered because: a copy that comes late would undo what was set meanwhile.

-- @include slices
-- @include clock
-- @include queue
-- @include order
-- @include side_calls
-- @include attributes

local lane, number, first_value = ARGV[1], ARGV[2], 3

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then return same_answer(earlier) end
if not queue_settings() then return 'queueNotFound' end
redis.call('ZCARD', line) -- a foreign type shows itself before the first write

redis.call('HSET', messages, 'modified', digits(math.floor(now_ms / 1000)))
call_many('HSET', messages, values_from(ARGV, first_value))
return answer(lane, number, attributes())
