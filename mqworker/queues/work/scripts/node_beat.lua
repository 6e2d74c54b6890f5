#!lua flags=allow-oom
-- node_beat: the sign of life of consumers, whatever queues they hold something in; and who else gave one.
--
-- KEYS[1]  beats  zset  'consumer time-out' -> last beat: ms by this server, or one more than before
-- ARGV[1]  ms after which a consumer that gave no more signs is left out; ARGV[2..] 'consumer time-out' of those that live
-- Returns  {consumer and time-out, last beat, ...} of all; only whether a beat changed means anything, for clocks may jump
-- Repeatable: a second beat is a beat.

-- @include slices
-- @include clock

local beats = KEYS[1]
local kept_ms = tonumber(ARGV[1])
local living = values_from(ARGV, 2)

-- Each beat differs from the one before it, even when the clock stands still or went back by just as much.
for _, consumer in ipairs(living) do
  local last = tonumber(redis.call('ZSCORE', beats, consumer) or 0)
  redis.call('ZADD', beats, digits(math.max(now_ms, last + 1)), consumer)
end
redis.call('ZREMRANGEBYSCORE', beats, '-inf', digits(now_ms - kept_ms))
return redis.call('ZRANGE', beats, 0, -1, 'WITHSCORES')
