-- calls: recognises a call that was carried out before, as parts/calls.lua does, in a side key for each lane.
-- It goes some minutes after its last use, much later than any caller gives up.
-- Needs: topic_keys, order.

local REMEMBERED_MS = 300000

local function call_key(lane)
  return side .. ':call:' .. lane
end

-- The reply that this call gave when it ran before; or the error of one that is late; neither when it is new.
local function earlier_reply(lane, number)
  local newest_number, reply = string.match(redis.call('GET', call_key(lane)) or '', '^(%d+) (.*)$')
  if not newest_number then return nil end
  local packed, refusal = judge(number, newest_number, reply)
  return packed and cmsgpack.unpack(packed), refusal
end

local function remember_reply(lane, number, reply)
  redis.call('SET', call_key(lane), number .. ' ' .. cmsgpack.pack(reply), 'PX', REMEMBERED_MS)
  return reply
end
