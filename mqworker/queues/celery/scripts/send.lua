#!lua
-- send: push messages to the lists, as Celery's producers do.
--
-- KEYS     as in parts/queue.lua
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/side_calls.lua
-- ARGV[3]  how many lists; ARGV[4..] two each: position of the list, the message
-- Returns  how many
-- Numbered because: a copy would be a second message.

-- @include clock
-- @include queue
-- @include order
-- @include side_calls

local lane, number, list_count, first_message, stride = ARGV[1], ARGV[2], tonumber(ARGV[3]), 4, 2

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then return same_answer(earlier) end
check_types(list_count)
local sent = 0
for at = first_message, #ARGV, stride do
  redis.call('LPUSH', KEYS[FIRST_LIST + tonumber(ARGV[at]) - 1], ARGV[at + 1])
  sent = sent + 1
end
return answer(lane, number, sent)
