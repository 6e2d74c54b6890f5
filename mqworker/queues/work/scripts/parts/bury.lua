-- bury: gives up on a message and keeps it as a dead letter: the record, and why, as JSON.
-- Needs: keys, clock.

local function bury(id, record, letter)
  redis.call('ZADD', dead, digits(now_ms), id)
  redis.call('HSET', letters, id, #letter .. ' ' .. letter .. record)
end
