#!lua flags=allow-oom
-- extend: prolong leases that are still held: the messages stay hidden for so long from now.
--
-- KEYS     as in parts/rsmq_queue.lua; KEYS[4] held, KEYS[5] leases, see parts/rsmq_leases.lua
-- ARGV[1]  lease ms from now; ARGV[2..] fences
-- Returns  {position from 0, ...}: leases that were lost
-- Repeatable: the same call again only sets the same end a little later.

-- @include clock
-- @include queue
-- @include leases

local lease_ms, first_fence = tonumber(ARGV[1]), 2

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
return lost
