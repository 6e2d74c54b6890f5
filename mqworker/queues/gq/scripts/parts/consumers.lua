-- consumers: who is alive, in the order of birth.
-- Needs: clock, gq_queue.

-- Whether a consumer is registered and was silent for less than `dead_after_ms`.
local function is_alive(consumer, dead_after_ms)
  local beat_at_ms = tonumber(redis.call('ZSCORE', beats, consumer) or nil)
  return beat_at_ms ~= nil and now_ms - beat_at_ms < dead_after_ms
end

-- Index from 0 among the active, and how many these are; nil for one that is not active.
local function view_of(consumer, dead_after_ms)
  local index, count = nil, 0
  for _, each in ipairs(redis.call('ZRANGE', births, 0, -1)) do
    if is_alive(each, dead_after_ms) then
      if each == consumer then index = count end
      count = count + 1
    end
  end
  return index, count
end
