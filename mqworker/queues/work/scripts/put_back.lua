#!lua flags=allow-oom
-- put_back: return elements that were popped for somebody who is gone to the front of the undelivered line, as
-- if they had not been popped.
--
-- KEYS     as in parts/keys.lua, then those of parts/rqueue.lua
-- ARGV[1]  events kept in the stream, about; ARGV[2..] ids, in the order in which they were popped
-- Returns  how many were put back; who was recovered or acknowledged meanwhile belongs to somebody else
-- Errors   WRONGTYPE
-- Atomic because: an element between the two lines would be lost. Repeatable: what is back is not delivered.

-- @include keys
-- @include clock
-- @include record
-- @include place
-- @include report
-- @include rqueue

local kept, first_id = ARGV[1], 2

if holds_wrong_type() then return redis.error_reply(WRONG_TYPE) end
local was_idle = is_idle()
redis.call('ZCARD', delivered)
redis.call('HLEN', popped)
redis.call('ZCARD', deadlines)
redis.call('XLEN', events)

local front, happened = {}, {}
for i = first_id, #ARGV do
  local id = ARGV[i]
  local _, deliveries, record = unpack_popped(redis.call('HGET', popped, id))
  if deliveries == 1 then
    redis.call('HDEL', popped, id)
    redis.call('ZREM', delivered, id)
    if is_record(record) then watch_deadline(id, record) end
    front[#front + 1] = record
    happened[#happened + 1] = { event = 'released', task_id = id }
  end
end
if #front > 0 then
  place_ready(front, 'LPUSH')
  append_events(kept, happened)
  if was_idle then wake('ready') end
end
return #front
