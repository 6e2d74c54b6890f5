#!lua flags=allow-oom
-- pop: confirm that a consumer lives and give it the oldest messages of its partition, in one step.
--
-- KEYS     as in parts/queue.lua
-- ARGV[1]  consumer, ARGV[2] number of its claim
-- ARGV[3]  how many at the most
-- ARGV[4]  ms of silence that mean death
-- ARGV[5]  guarantee
-- ARGV[6]  retries allowed, '' without limit
-- ARGV[7]  ms after which others' messages may be taken when there is none of its own, '' for never
-- ARGV[8]  where to begin: '0', or what an earlier call answered
-- Returns  {where to go on or '', {{id, payload, attempt, created at, deadline or ''}, ...}}, or 'unregistered'
-- Errors   MQW_STALE when a newer claim of the consumer was answered
-- Atomic because: selecting and claiming in one step leaves no room for a conflict.

-- @include clock
-- @include queue
-- @include consumers
-- @include order
-- @include claims
-- @include end
-- @include take

local consumer, claim, count, dead_after_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local guarantee, max_retries, steal_after_ms, start = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]

local is_answered, is_late = was_answered(consumer, claim)
if is_late then return is_late end
local before = taken_before(consumer, claim)
if is_answered or #before > 0 then return { '', before } end
local index, total = view_of(consumer, dead_after_ms)
if not index then return 'unregistered' end
redis.call('ZADD', beats, 'XX', digits(now_ms), consumer)
if guarantee == 'at_most_once' then fail_expired() end

local ids, stopped_at = candidates(start, count, guarantee, index, total, 'own', 0)
if #ids == 0 and not stopped_at and steal_after_ms then
  ids = candidates('0', count, guarantee, index, total, 'any', steal_after_ms)
end
if not stopped_at then note_answered(consumer, claim) end -- else its next step goes on under the same number
return { stopped_at or '', take(ids, guarantee, max_retries, consumer, claim) }
