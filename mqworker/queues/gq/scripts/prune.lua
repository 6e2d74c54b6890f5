#!lua flags=allow-oom
-- prune: delete the records of dead consumers, and do what is due: deadlines, and what is kept long enough.
--
-- KEYS     as in parts/queue.lua
-- ARGV[1]  ms of silence that mean death
-- ARGV[2]  'reclaim' to queue again what they held, 'leave' to leave it consumed
-- ARGV[3]  guarantee
-- ARGV[4]  retries allowed, '' without limit
-- ARGV[5]  ms, ARGV[6] count: how long and how many ended messages are kept
-- Returns  {consumer, ...}: those that were deleted; a repeated call finds none
-- Atomic because: what a deleted consumer held could no longer be found.

-- @include clock
-- @include queue
-- @include consumers
-- @include end
-- @include reclaim

local dead_after_ms, fate, guarantee, max_retries = tonumber(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])
local retain_ms, retain_count = tonumber(ARGV[5]), tonumber(ARGV[6])

-- The clock was set back: a beat of the time before must not keep the dead alive for as long.
for _, consumer in ipairs(redis.call('ZRANGE', beats, '(' .. digits(now_ms), '+inf', 'BYSCORE')) do
  redis.call('ZADD', beats, 'XX', digits(now_ms), consumer)
end
local pruned = redis.call('ZRANGE', beats, '-inf', digits(now_ms - dead_after_ms), 'BYSCORE')
for _, consumer in ipairs(pruned) do
  if fate == 'reclaim' then reclaim_from(consumer, max_retries) end
  delete_consumer(consumer)
end
if guarantee == 'at_most_once' then fail_expired() end
purge_done(retain_ms, retain_count)
return pruned
