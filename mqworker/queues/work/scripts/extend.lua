#!lua flags=allow-oom
-- extend: prolong leases that expire, if they are still held.
--
-- KEYS     as in parts/keys.lua; KEYS[21] held: fence -> record
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/calls.lua
-- ARGV[3]  lease ms from now; ARGV[4..] fences
-- Returns  {position from 0, ...}: leases that were lost
-- Numbered because: a copy that comes late would shorten a lease that was prolonged by more meanwhile.

-- @include keys
-- @include clock
-- @include order
-- @include calls

local held = KEYS[21]
local lane, number, lease_ms, first_fence = ARGV[1], ARGV[2], tonumber(ARGV[3]), 4

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then return same_answer(earlier) end
redis.call('ZCARD', leases)
local lost, ends_at_ms = {}, digits(now_ms + lease_ms)
for i = first_fence, #ARGV do
  if redis.call('HEXISTS', held, ARGV[i]) == 1 then
    redis.call('ZADD', leases, ends_at_ms, ARGV[i])
  else
    lost[#lost + 1] = i - first_fence
  end
end
return answer(lane, number, lost)
