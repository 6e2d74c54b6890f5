-- side_calls: recognises a call that was carried out before, as parts/calls.lua does, in a side key of ours.
-- The key goes an hour after its last use, much later than any caller gives up; while it lives, each new lane drops
-- some that were long unused.
-- A queue that is not there leaves nothing behind, so a call that found none is not remembered.
-- Needs: clock, order; and `calls`, the key.

local REMEMBERED_MS = 3600000

-- The reply that this call gave when it ran before; or the error of one that is late; neither when it is new.
local function earlier_reply(lane, number)
  local newest = redis.call('HGET', calls, lane)
  if not newest then return nil end
  local newest_number, reply = string.match(newest, '^(%d+) %d+ (.*)$')
  if not newest_number then return nil end
  return judge(number, newest_number, reply)
end

local function drop_unused_lanes()
  local some = redis.call('HRANDFIELD', calls, 10, 'WITHVALUES')
  for i = 1, #some, 2 do
    local at_ms = tonumber(string.match(some[i + 1], '^%d+ (%d+) ') or nil)
    if not at_ms or at_ms < now_ms - REMEMBERED_MS then redis.call('HDEL', calls, some[i]) end
  end
end

local function remember_reply(lane, number, reply)
  if redis.call('HSET', calls, lane, number .. ' ' .. digits(now_ms) .. ' ' .. reply) == 1 then drop_unused_lanes() end
  redis.call('PEXPIRE', calls, REMEMBERED_MS)
end

-- For scripts whose answer is remembered whole, names of refusals such as 'messageTooLong' among them.
local function answer(lane, number, reply)
  remember_reply(lane, number, cmsgpack.pack(reply))
  return reply
end

local function same_answer(earlier)
  return cmsgpack.unpack(earlier)
end
