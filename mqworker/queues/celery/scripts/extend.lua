#!lua flags=allow-oom
-- extend: prolong leases that are still held.
--
-- KEYS     as in parts/queue.lua
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/side_calls.lua
-- ARGV[3]  lease ms from now; ARGV[4..] fences
-- Returns  {position from 0, ...}: leases that were lost
-- Numbered because: a copy that comes late would shorten a lease that was prolonged by more meanwhile.

-- @include clock
-- @include queue
-- @include order
-- @include side_calls

local lane, number, lease_ms, first_fence = ARGV[1], ARGV[2], tonumber(ARGV[3]), 4

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then return same_answer(earlier) end
check_types(0)
local lost, ends_at_ms = {}, digits(now_ms + lease_ms)
for at = first_fence, #ARGV do
  local fence = ARGV[at]
  if held_entry(fence) then
    redis.call('ZADD', leases, ends_at_ms, fence)
  else
    lost[#lost + 1] = at - first_fence
  end
end
return answer(lane, number, lost)
