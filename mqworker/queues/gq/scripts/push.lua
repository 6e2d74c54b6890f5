#!lua
-- push: append a batch of messages, all or none, with ids that follow one another.
--
-- KEYS     as in parts/queue.lua
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/side_calls.lua
-- ARGV[3..] of each message: deadline ('' for none), payload
-- Returns  id of the first
-- Atomic because: a batch is visible whole or not at all.

-- @include clock
-- @include queue
-- @include order
-- @include side_calls

local lane, number, first_message, stride = ARGV[1], ARGV[2], 3, 2

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then return tonumber(earlier) end
redis.call('ZCARD', queued) -- foreign types show themselves before the first write
redis.call('ZCARD', deadlines)
redis.call('HLEN', payloads)
redis.call('HLEN', records)

local count = (#ARGV - first_message + 1) / stride
local first = redis.call('HINCRBY', meta, 'id', count) - count + 1
for i = 0, count - 1 do
  local deadline, payload = ARGV[first_message + stride * i], ARGV[first_message + stride * i + 1]
  local record = {
    id = digits(first + i), status = 'queued', queued_at = now_ms, created_at = now_ms,
    deadline = deadline ~= '' and instant_ms(deadline) or nil, attempts = 0, consumer = '-', claim = '0', reason = '-',
  }
  redis.call('HSET', payloads, record.id, payload)
  redis.call('ZADD', queued, record.id, record.id)
  if record.deadline then redis.call('ZADD', deadlines, digits(record.deadline), record.id) end
  write_record(record)
end
remember_reply(lane, number, digits(first))
return first
