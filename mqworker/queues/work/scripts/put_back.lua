#!lua flags=allow-oom
-- put_back: return elements that were popped for somebody who is gone to the front of the undelivered line, as
-- if they had not been popped.
--
-- KEYS     as in parts/keys.lua, then those of parts/rqueue.lua
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/calls.lua
-- ARGV[3]  events kept in the stream, about; ARGV[4..] ids, in the order in which they were popped
-- Returns  how many were put back; who was recovered or acknowledged meanwhile belongs to somebody else
-- Errors   WRONGTYPE
-- Atomic because: an element between the two lines would be lost. Numbered because: a copy that comes
-- late would take an element from whoever popped it since.

-- @include slices
-- @include keys
-- @include clock
-- @include order
-- @include calls
-- @include record
-- @include place
-- @include slots
-- @include closing
-- @include limited
-- @include report
-- @include rqueue

local lane, number, kept, first_id = ARGV[1], ARGV[2], ARGV[3], 4

if holds_wrong_type() then return redis.error_reply(WRONG_TYPE) end
local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then return same_answer(earlier) end
local was_idle = is_idle()
redis.call('ZCARD', delivered)
redis.call('HLEN', popped)
redis.call('ZCARD', deadlines)
redis.call('XLEN', events)
redis.call('HLEN', slots)
redis.call('HLEN', parcels)
redis.call('ZCARD', delayed)
redis.call('ZCARD', all_limits)

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
if #happened > 0 then
  front = return_limited(front)
  place_ready(front, 'LPUSH')
  append_events(kept, happened)
  if was_idle and #front > 0 then wake('ready') end
end
return answer(lane, number, #happened)
