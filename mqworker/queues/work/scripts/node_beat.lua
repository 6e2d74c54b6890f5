#!lua flags=allow-oom
-- node_beat: the sign of life of consumers, whatever queues they hold something in; and who else gave one.
--
-- KEYS[1]  beats  zset  'consumer time-out' -> last beat, ms by this server
-- ARGV[1]  ms after which a consumer that gave no more signs is left out; ARGV[2..] 'consumer time-out' of those that live
-- Returns  {consumer and time-out, last beat, ...} of all; only whether a beat changed means anything, for clocks may jump
-- Repeatable: a second beat is a beat.

-- @include slices
-- @include clock

local beats = KEYS[1]
local kept_ms = tonumber(ARGV[1])
local living = values_from(ARGV, 2)

for _, consumer in ipairs(living) do redis.call('ZADD', beats, digits(now_ms), consumer) end
redis.call('ZREMRANGEBYSCORE', beats, '-inf', digits(now_ms - kept_ms))
return redis.call('ZRANGE', beats, 0, -1, 'WITHSCORES')
