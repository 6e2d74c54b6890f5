#!lua
-- move: note at which queue a recipient is registered from now on.
--
-- KEYS[1]  homes    hash    key of a recipient -> queue
-- KEYS[2]  queues   set
-- ARGV[1]  key, ARGV[2] queue, ARGV[3] 1: it must not be taken away from another queue, and nothing is written then
-- Returns  the queue where it was registered before, or is; '' when at none or at the same
-- Repeatable: not exactly, for the second time knows no old queue; a stale recipient is lost at its next ping.

local homes, queues, key, queue = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
redis.call('SCARD', queues) -- a foreign type shows itself before the first write
local must_stay = ARGV[3] == '1'
local old = redis.call('HGET', homes, key)
if must_stay and old and old ~= queue then return old end
redis.call('HSET', homes, key, queue)
redis.call('SADD', queues, queue)
return old and old ~= queue and old or ''
