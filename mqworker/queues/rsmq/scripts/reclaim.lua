#!lua flags=allow-oom
-- reclaim: forget leases that ended. Their messages are visible again by themselves; this puts them back to
-- where they stood when they were sent, before those that were sent later.
--
-- KEYS     as in parts/queue.lua; KEYS[4] held, KEYS[5] leases, see parts/leases.lua
-- ARGV[1]  how many at the most
-- Returns  {returned to the line, leases looked at}
-- Repeatable: what was forgotten is not found again.

-- @include clock
-- @include queue
-- @include leases

local limit = ARGV[1]

redis.call('HLEN', held) -- a foreign type shows itself before the first write
local ended = redis.call('ZRANGEBYSCORE', leases, '-inf', digits(now_ms), 'LIMIT', 0, limit)
local returned = 0
for _, fence in ipairs(ended) do
  local id, visible_at_ms = latest_delivery(fence)
  if id and visible_at_ms > now_ms then
    redis.call('ZADD', leases, digits(visible_at_ms), fence) -- a foreign client prolonged it
  else
    let_go(fence)
    if id then
      redis.call('ZADD', line, old_place(id), id)
      returned = returned + 1
    end
  end
end
return { returned, #ended }
