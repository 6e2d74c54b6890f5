#!lua flags=allow-oom
-- claim: take selected messages, those that nobody took meanwhile.
--
-- KEYS     as in parts/queue.lua
-- ARGV[1]  consumer, ARGV[2] number of its claim
-- ARGV[3]  guarantee
-- ARGV[4]  retries allowed, '' without limit
-- ARGV[5]  ms of silence that mean death
-- ARGV[6..] ids
-- Returns  {{id, payload, attempt, created at, deadline or ''}, ...}: what is the consumer's now, or 'unregistered'
-- Errors   MQW_STALE when a newer claim of the consumer was answered
-- Atomic because: a message must not be in two batches.

-- @include clock
-- @include queue
-- @include consumers
-- @include order
-- @include claims
-- @include end
-- @include take

local consumer, claim, guarantee, max_retries = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local dead_after_ms, first_id = tonumber(ARGV[5]), 6

local is_answered, is_late = was_answered(consumer, claim)
if is_late then return is_late end
local before = taken_before(consumer, claim)
if is_answered or #before > 0 then return before end
if not is_alive(consumer, dead_after_ms) then return 'unregistered' end
local ids = {}
for at = first_id, #ARGV do ids[#ids + 1] = ARGV[at] end
note_answered(consumer, claim)
return take(ids, guarantee, max_retries, consumer, claim)
