#!lua
-- publish_event: accept an event of a topic: for those who are subscribed now, or to be kept until somebody is.
--
-- KEYS     as in parts/keys.lua
-- ARGV[1]  event, an id of the caller's; ARGV[2] payload
-- ARGV[3]  how many events are kept while nobody subscribes, the newest
-- ARGV[4]  ms after which they are dropped if nothing more is published, 0 for never
-- Returns  {app/task, call, ...}: who gets a copy; empty when it is kept
-- Atomic because: who subscribes a moment later gets it from the backlog, and nobody both ways or neither.
-- Repeatable: copies have ids made of the event's, so an event that is noted twice still arrives once.

-- @include clock
-- @include keys

local event, payload, keep, ttl_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

look_at_types()
local calls = redis.call('HGETALL', subscribers)
if #calls == 0 then
  redis.call('RPUSH', backlog, event .. '\n' .. payload)
  redis.call('LTRIM', backlog, -keep, -1)
  if ttl_ms > 0 then redis.call('PEXPIRE', backlog, ttl_ms) else redis.call('PERSIST', backlog) end
  return calls
end
local names = {}
for i = 1, #calls, 2 do names[#names + 1] = calls[i] end
hand_out(event, payload, names)
return calls
