#!lua flags=no-writes
-- tail_events: how long the stream of events is, and how long it ever was.
--
-- KEYS[1]  events
-- Returns  {id of the newest block, blocks ever appended, blocks that are there}; '0-0' and zeros without a stream
-- Atomic because: the three must belong to the same instant, or a trimmed block looks like a lost one.

local events = KEYS[1]

if redis.call('EXISTS', events) == 0 then return { '0-0', 0, 0 } end
local about = redis.call('XINFO', 'STREAM', events)
local facts = {}
for i = 1, #about, 2 do facts[about[i]] = about[i + 1] end
return { facts['last-generated-id'], facts['entries-added'], facts['length'] }
