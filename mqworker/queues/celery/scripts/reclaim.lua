#!lua flags=allow-oom
-- reclaim: what is under a lease that ended waits again, due at once; the hand-over is counted.
--
-- KEYS     as in parts/queue.lua
-- ARGV[1]  how many at the most
-- Returns  {came back, leases looked at}
-- Repeatable: what came back is not found again.

-- @include clock
-- @include queue

local limit = ARGV[1]

check_types(0)
local ended = redis.call('ZRANGEBYSCORE', leases, '-inf', digits(now_ms), 'LIMIT', 0, limit)
local returned = 0
for _, fence in ipairs(ended) do
  local entry = redis.call('HGET', held, fence)
  local found = opened(entry)
  if found then
    found.deliveries = found.deliveries + 1
    wait_until(entry, found, now_ms)
    returned = returned + 1
  end
  let_go(fence)
end
return { returned, #ended }
