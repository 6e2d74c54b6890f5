#!lua flags=allow-oom
-- ack: MQ.ACK, remove delivered elements for good.
--
-- KEYS     as in parts/keys.lua, then those of parts/rqueue.lua
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/calls.lua
-- ARGV[3]  events kept in the stream, about; ARGV[4] window ms of chosen ids; ARGV[5..] ids
-- Returns  {id, ...}: those really removed, in the order given; false when there is no such queue
-- Errors   WRONGTYPE
-- Atomic because: the reply says who acknowledged, so that of two only one is told so.

-- @include slices
-- @include keys
-- @include clock
-- @include order
-- @include calls
-- @include record
-- @include slots
-- @include guard
-- @include report
-- @include rqueue

local lane, number, kept, window_ms, first_id = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), 5

if holds_wrong_type() then return redis.error_reply(WRONG_TYPE) end
local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then return cjson.decode(earlier) end
if redis.call('EXISTS', meta) == 0 then return false end
redis.call('ZCARD', delivered)
redis.call('XLEN', events)
redis.call('HLEN', guards)
redis.call('HLEN', slots)

local acked, happened = {}, {}
for i = first_id, #ARGV do
  local id = ARGV[i]
  local text = redis.call('HGET', popped, id)
  if text then
    local _, deliveries, record = unpack_popped(text)
    redis.call('HDEL', popped, id)
    redis.call('ZREM', delivered, id)
    if is_record(record) and guard_mode(record) ~= '-' then release_guard(record, id, window_ms, 'S') end
    acked[#acked + 1] = id
    happened[#happened + 1] = { event = 'succeeded', task_id = id, attempt = deliveries }
  end
end
if #acked > 0 then
  redis.call('HINCRBY', meta, 'succeeded', #acked)
  append_events(kept, happened)
  free_slots_and_call(acked)
end
remember_reply(lane, number, #acked == 0 and '[]' or cjson.encode(acked))
return acked
