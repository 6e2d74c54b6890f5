#!lua
-- revive: put dead letters back in line, as if they had been sent just now; foreign clients see them again.
--
-- KEYS     as in parts/rsmq_queue.lua; KEYS[4] held and KEYS[5] leases are not used; KEYS[6..8] dead letters, see
--          parts/rsmq_dead.lua
-- ARGV     ids
-- Returns  {1 for each that was put back, 0 for each that was no dead letter}, or 'queueNotFound'
-- Repeatable: what is back in line is no dead letter any more.

-- @include clock
-- @include queue
-- @include dead

if not queue_settings() then return 'queueNotFound' end
redis.call('ZCARD', line) -- foreign types show themselves before the first write
redis.call('ZCARD', buried)
redis.call('HLEN', letters)

local verdicts = {}
for position, id in ipairs(ARGV) do
  local message = redis.call('HGET', dead, id)
  verdicts[position] = message and 1 or 0
  if message then
    redis.call('HSET', messages, id, message)
    redis.call('ZADD', line, digits(now_ms), id)
    redis.call('HDEL', dead, id)
    redis.call('HDEL', letters, id)
    redis.call('ZREM', buried, id)
  end
end
return verdicts
