-- leases: what our consumers hold of a queue. RSMQ has no fences, so they stand in side keys.
-- Every client counts `:rc` up when it receives: a delivery is held as long as the count is still the one that its
-- claim made, and the message still hidden. That sees foreign receivers too, and lets them prolong.
-- Needs: clock, rsmq_queue.

local held, leases = KEYS[4], KEYS[5]

local function let_go(fence)
  redis.call('HDEL', held, fence)
  redis.call('ZREM', leases, fence)
end

-- The id and the instant until which it is hidden, if the fence's delivery is still the message's latest.
local function latest_delivery(fence)
  local id, received = string.match(redis.call('HGET', held, fence) or '', '^(.*) (%d+)$')
  local visible_at_ms = id and tonumber(redis.call('ZSCORE', line, id) or nil)
  if not visible_at_ms or redis.call('HGET', messages, id .. ':rc') ~= received then return nil end
  return id, visible_at_ms
end

-- The id, if the delivery is still held; a lapsed one is not, even if nobody received the message yet.
local function held_id(fence)
  local id, visible_at_ms = latest_delivery(fence)
  return id and visible_at_ms > now_ms and id or nil
end

-- The score that puts a message back to where it stood when it was sent.
local function old_place(id)
  local sent_us = tonumber(string.sub(id, 1, 10), 36)
  return digits(sent_us and math.min(math.floor(sent_us / 1000), now_ms) or now_ms)
end
