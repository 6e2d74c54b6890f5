#!lua
-- revive: put dead letters back in line, as if they had been sent just now; foreign clients see them again.
--
-- KEYS     as in parts/queue.lua; KEYS[4] held and KEYS[5] leases are not used; KEYS[6..8] dead letters, see
--          parts/dead.lua
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/side_calls.lua
-- ARGV[3..] ids
-- Returns  {1 for each that was put back, 0 for each that was not a dead letter}, or 'queueNotFound'
-- Numbered because: a copy that comes late would revive what was buried again.

-- @include clock
-- @include queue
-- @include order
-- @include side_calls
-- @include dead

local lane, number, first_id = ARGV[1], ARGV[2], 3

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then return same_answer(earlier) end
if not queue_settings() then return 'queueNotFound' end
redis.call('ZCARD', line) -- foreign types show themselves before the first write
redis.call('ZCARD', buried)
redis.call('HLEN', letters)

local verdicts = {}
for at = first_id, #ARGV do
  local id, position = ARGV[at], at - first_id + 1
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
return answer(lane, number, verdicts)
