#!lua
-- send: sendMessage of RSMQ, for one message or a batch. All of them, or a refusal and none.
--
-- KEYS     as in parts/queue.lua
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/side_calls.lua
-- ARGV[3]  size of the largest message, in the unit that the caller counts in
-- ARGV[4]  channel that hears how many messages the queue holds, '' for none
-- ARGV[5..] of each message: the random end of its id, when it is due ('' is the queue's delay), its bytes.
--          The ends ascend: one batch shares one time, and equal times are delivered in the order of the ids.
-- Returns  {beginning of the ids}, or 'queueNotFound' or 'messageTooLong'
-- Atomic because: a message without its place in the line would never be received, and never be deleted.

-- @include slices
-- @include clock
-- @include queue
-- @include order
-- @include side_calls

local lane, number, largest, channel = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local first_message, stride = 5, 3

-- Ten digits until the year 2085; foreign clients read the time of sending from them.
local function base36_microseconds()
  local time = redis.call('TIME')
  local rest, text = tonumber(time[1]) * 1000000 + tonumber(time[2]), ''
  while rest > 0 do
    local digit = rest % 36
    text = string.char(digit < 10 and 48 + digit or 87 + digit) .. text
    rest = (rest - digit) / 36
  end
  return text
end

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then return same_answer(earlier) end
local queue = queue_settings()
if not queue then return 'queueNotFound' end
if queue.maxsize >= 0 and largest > queue.maxsize then return answer(lane, number, 'messageTooLong') end
local length = redis.call('ZCARD', line) -- also: a foreign type shows itself before the first write

local stamp, usual_due_ms = base36_microseconds(), digits(now_ms + queue.delay_ms)
local scores, fields = {}, {}
for at = first_message, #ARGV, stride do
  local id, due, message = stamp .. ARGV[at], ARGV[at + 1], ARGV[at + 2]
  scores[#scores + 1] = due == '' and usual_due_ms or digits(math.max(instant_ms(due), now_ms))
  scores[#scores + 1] = id
  fields[#fields + 1] = id
  fields[#fields + 1] = message
end
local total = #scores / 2
call_many('ZADD', line, scores)
redis.call('HSET', messages, 'totalsent', digits(queue.total_sent + total))
call_many('HSET', messages, fields)
if channel ~= '' then redis.call('PUBLISH', channel, digits(length + total)) end
return answer(lane, number, { stamp })
