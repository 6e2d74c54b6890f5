#!lua flags=allow-oom
-- extend: prolong leases that end by themselves, if they are still held.
--
-- KEYS     as in parts/keys.lua; KEYS[21] held: fence -> record
-- ARGV[1]  lease ms from now; ARGV[2..] fences
-- Returns  {position from 0, ...}: leases that were lost
-- Repeatable: the same call again only sets the same end a little later.

-- @include keys
-- @include clock

local held = KEYS[21]
local lease_ms = tonumber(ARGV[1])

redis.call('ZCARD', leases)
local lost, ends_at_ms = {}, digits(now_ms + lease_ms)
for i = 2, #ARGV do
  if redis.call('HEXISTS', held, ARGV[i]) == 1 then
    redis.call('ZADD', leases, ends_at_ms, ARGV[i])
  else
    lost[#lost + 1] = i - 2
  end
end
return lost
