#!lua flags=allow-oom
-- cancel_workflow: let nothing more follow from what members of a workflow do.
--
-- KEYS[1]  flow     hash, as in advance_workflow.lua
-- Returns  1 when it ran until now or was cancelled before, 0 when it has ended or is unknown
-- Repeatable: cancelling twice is cancelling once.

local flow = KEYS[1]

local state = redis.call('HGET', flow, 'state')
if state == 'cancelled' then return 1 end
if state ~= 'running' then return 0 end
redis.call('HSET', flow, 'state', 'cancelled')
redis.call('PEXPIRE', flow, redis.call('HGET', flow, 'kept_ms') or 1)
redis.call('SPUBLISH', flow, 'cancelled')
return 1
