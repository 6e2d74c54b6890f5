-- calls: makes a script repeatable. A caller's lane runs one call at a time and numbers them, so the newest
-- number and reply of each lane are all that must be remembered to recognise a call that was carried out before.
-- Every answer is remembered, "nothing" too: a copy that arrives late must not find something.
-- The record outlives whatever became of the messages meanwhile; forget.lua drops lanes long unused.
-- It is the field '@lane' of meta: 'number at_ms reply'. A call without a lane ('') is never repeated.
-- Needs: keys, clock, order.

-- The reply that this call gave when it ran before; or the error of one that is late; neither when it is new.
local function earlier_reply(lane, number)
  local newest = lane ~= '' and redis.call('HGET', meta, '@' .. lane)
  if not newest then return nil end
  local newest_number, reply = string.match(newest, '^(%d+) %d+ (.*)$')
  if not newest_number then return nil end
  return judge(number, newest_number, reply)
end

-- A call may say which one it follows, as '9>7': then only a lane whose newest call is that one takes it. '0' is the lane
-- that is not known. So are batches of an outbox told apart, whoever moves them and however late (decision 44).
local function number_and_earlier(text)
  local number, earlier = string.match(text, '^(%d+)>(%d+)$')
  return number or text, earlier
end

local function refusal_unless_follows(lane, number, earlier)
  if not earlier then return nil end
  local newest = string.match(redis.call('HGET', meta, '@' .. lane) or '', '^%d+') or '0'
  if newest == earlier then return nil end
  return redis.error_reply('MQW_STALE call ' .. number .. ' follows call ' .. earlier .. ', and its lane is at ' .. newest)
end

local function remember_reply(lane, number, reply)
  if lane == '' then return end
  redis.call('HSET', meta, '@' .. lane, number .. ' ' .. digits(now_ms) .. ' ' .. reply)
end

-- For a call that may have changed nothing: it leaves nothing behind where there is no queue.
local function remember_in_queue(lane, number, reply)
  if redis.call('EXISTS', meta) == 1 then remember_reply(lane, number, reply) end
end

-- For scripts whose answer is small: it is remembered whole, as text like all of meta.
local function answer(lane, number, reply)
  remember_in_queue(lane, number, cjson.encode({ reply }))
  return reply
end

local function same_answer(earlier)
  return cjson.decode(earlier)[1]
end
