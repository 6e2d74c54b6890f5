-- calls: recognises a call whose reply was lost, as parts/calls.lua does, in a side key for each lane.
-- It goes some minutes after its last use, much later than any caller gives up.
-- Needs: topic_keys.

local REMEMBERED_MS = 300000

local function call_key(lane)
  return side .. ':call:' .. lane
end

-- The reply that this call gave when it ran before, or nil when it is new.
local function earlier_reply(lane, number)
  local newest_number, reply = string.match(redis.call('GET', call_key(lane)) or '', '^(%d+) (.*)$')
  return newest_number == number and cmsgpack.unpack(reply) or nil
end

local function remember_reply(lane, number, reply)
  redis.call('SET', call_key(lane), number .. ' ' .. cmsgpack.pack(reply), 'PX', REMEMBERED_MS)
  return reply
end
