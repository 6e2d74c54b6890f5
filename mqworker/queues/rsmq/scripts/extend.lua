#!lua flags=allow-oom
-- extend: prolong leases that are still held: the messages stay hidden for so long from now.
--
-- KEYS     as in parts/queue.lua; KEYS[4] held, KEYS[5] leases, see parts/leases.lua
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/side_calls.lua
-- ARGV[3]  lease ms from now; ARGV[4..] fences
-- Returns  {position from 0, ...}: leases that were lost
-- Numbered because: a copy that comes late would shorten a lease that was prolonged by more meanwhile.

-- @include clock
-- @include queue
-- @include order
-- @include side_calls
-- @include leases

local lane, number, lease_ms, first_fence = ARGV[1], ARGV[2], tonumber(ARGV[3]), 4

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then return same_answer(earlier) end
redis.call('ZCARD', leases) -- a foreign type shows itself before the first write
local lost, ends_at_ms = {}, digits(now_ms + lease_ms)
for at = first_fence, #ARGV do
  local fence = ARGV[at]
  local id = held_id(fence)
  if id then
    redis.call('ZADD', line, ends_at_ms, id)
    redis.call('ZADD', leases, ends_at_ms, fence)
  else
    lost[#lost + 1] = at - first_fence
  end
end
return answer(lane, number, lost)
