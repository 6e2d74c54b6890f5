-- calls: makes a script repeatable. A caller's lane runs one call at a time and numbers them, so the newest
-- number and reply of each lane are all that must be remembered to recognise a call whose reply was lost.
-- The record outlives whatever became of the messages meanwhile; forget.lua drops lanes long unused.
-- It is the field '@lane' of meta: 'number at_ms reply'.
-- Needs: keys, clock.

-- The reply that this call gave when it ran before, or nil when it is new.
local function earlier_reply(lane, number)
  local newest = redis.call('HGET', meta, '@' .. lane)
  if not newest then return nil end
  local newest_number, reply = string.match(newest, '^(%d+) %d+ (.*)$')
  if newest_number ~= number then return nil end
  return reply
end

local function remember_reply(lane, number, reply)
  redis.call('HSET', meta, '@' .. lane, number .. ' ' .. digits(now_ms) .. ' ' .. reply)
end
