#!lua
-- enqueue: store plain messages at the back of the ready line. All of them, or an error and none.
-- The quick road: five commands for one message or a thousand. The stream's new id is the clock, and one read and
-- one write of meta are the limit, the counter and the call (parts/calls.lua) at once.
-- Where nothing waits and a consumer has offered to begin at once (claim.lua), a single message is handed over: it is
-- under that consumer's lease from the start, and travels inside the wake-up (decision 8). With a ticket it goes to
-- the worker itself, too, which begins unless the dispatcher was quicker to decide otherwise (decision 12).
--
-- KEYS     meta, ready, urgent, delayed, events: only these, for every key costs a quarter of a microsecond
-- ARGV[1]  lane, ARGV[2] number: the call
-- ARGV[3]  events kept in the stream, about
-- ARGV[4]  codec, ARGV[5] block: the `enqueued` events, in the order of the messages
-- ARGV[6..] records without their first 13 characters, which the server's clock supplies
-- Returns  {}, as enqueue_rich does when all were stored
-- Errors   MQW_FULL when the queue's length limit would be passed
-- Atomic because: a batch is visible whole or not at all, and its event with it.

-- @include fence
-- @include order

local meta, ready, urgent, delayed, events = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local lane, number, kept, codec, block, first_message = '@' .. ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], 6

local MOST_AT_ONCE = 4000 -- as in parts/slices.lua, which would cost each call of one message its functions
local LARGEST_HANDED_OVER = 65536 -- a subscriber that gets too much at once is cut off by the server

local total = #ARGV - first_message + 1
local known = redis.call('HMGET', meta, lane, 'enqueued', 'limit', 'holes', 'events_kept', 'offer')
local newest_call, enqueued, limit, holes = known[1], known[2] or 0, known[3], known[4] or 0
local offer = known[6]
kept = known[5] or kept -- an archiver wants more kept than the cap would
-- As a rule the number is as long as the newest and above it, which is quicker to see than to say (parts/calls.lua).
local digits_of_newest = newest_call and (string.find(newest_call, ' ', 1, true) or 1) - 1
if newest_call and (#number ~= digits_of_newest or number <= string.sub(newest_call, 1, digits_of_newest)) then
  local newest_number, reply = string.match(newest_call, '^(%d+) %d+ (.*)$')
  local earlier, is_late
  if newest_number then earlier, is_late = judge(number, newest_number, reply) end
  if is_late then return is_late end
  if earlier then return {} end
end

local length = redis.call('LLEN', ready)
if limit then
  local waiting = length - holes + redis.call('ZCARD', urgent) + redis.call('ZCARD', delayed)
  if waiting + total > tonumber(limit) then
    local refusal =
      redis.error_reply('MQW_FULL ' .. waiting .. ' waiting, ' .. total .. ' more would pass the limit of ' .. limit)
    redis.call('HSET', meta, lane, number .. ' ' .. redis.call('TIME')[1] .. '000 ' .. as_refused(refusal))
    return refusal
  end
end

local consumer, ticket, other_tickets, held
if offer and total == 1 and length == 0 and #ARGV[first_message] <= LARGEST_HANDED_OVER then
  consumer, ticket, other_tickets = string.match(offer, '^(%S+) (%S+) ?(.*)$')
  if consumer and redis.call('ZCARD', urgent) == 0 then
    held = string.sub(meta, 1, -5) .. 'held:' .. consumer -- in the queue's slot, as the declared keys are
    redis.call('HLEN', held)
  end
end

local block_id = redis.call('XADD', events, 'MAXLEN', '~', kept, '*', 'n', total, codec, block)
local stamp = string.sub(block_id, 1, 13)
local called, passed = number .. ' ' .. stamp .. ' []', string.format('%.0f', enqueued + total)
if held then
  local record = stamp .. ARGV[first_message]
  local fence = string.format('%.0f', first_fence(redis.call('HGET', meta, 'fence'), stamp, 1))
  local handed_over = fence .. ' ' .. ticket .. ' ' .. record
  if redis.call('SPUBLISH', held, handed_over) > 0 then
    local worker = string.match(ticket, '^%d+')
    if worker then redis.call('SPUBLISH', string.sub(meta, 1, -5) .. 'begin:' .. consumer .. ':' .. worker, handed_over) end
    local left = other_tickets == '' and '' or consumer .. ' ' .. other_tickets
    redis.call('HSET', held, fence, record)
    redis.call('HSET', meta, lane, called, 'enqueued', passed, 'fence', fence, 'offer', left)
    return {}
  end
  redis.call('HDEL', meta, 'offer') -- whoever made it is gone
end
if total == 1 then
  redis.call('RPUSH', ready, stamp .. ARGV[first_message])
else
  local records = {}
  for i = 1, total do records[i] = stamp .. ARGV[first_message + i - 1] end
  for first = 1, total, MOST_AT_ONCE do
    redis.call('RPUSH', ready, unpack(records, first, math.min(first + MOST_AT_ONCE - 1, total)))
  end
end
redis.call('HSET', meta, lane, called, 'enqueued', passed)
-- An offer beside messages: whoever put them there woke nobody (parts/place.lua, is_overlooked).
if length == 0 or (offer and offer ~= '') then redis.call('SPUBLISH', meta, 'ready') end
return {}
