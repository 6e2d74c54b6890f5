#!lua flags=allow-oom
-- pop: MQ.POP, move the oldest undelivered elements to the tail of the delivered line.
--
-- KEYS     as in parts/keys.lua, then those of parts/rqueue.lua
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/calls.lua
-- ARGV[3]  events kept in the stream, about; ARGV[4] how many at the most; ARGV[5] window ms of chosen ids
-- Returns  {{id, element}, ...}, oldest first; false when there is no such queue; -1 to call again: much was passed
--          over, more may be behind
-- Errors   WRONGTYPE
-- Atomic because: an element between the two lines would be lost.

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
-- @include guard
-- @include report
-- @include announce
-- @include take
-- @include rqueue

local lane, number, kept, count, window_ms = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

if holds_wrong_type() then return redis.error_reply(WRONG_TYPE) end
local LOOK_AGAIN = '-1'

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier == LOOK_AGAIN then return -1 end
if earlier then
  local reply = {}
  for id in string.gmatch(earlier, '[^ ]+') do
    local text = redis.call('HGET', popped, id)
    if text then
      local _, _, record = unpack_popped(text)
      reply[#reply + 1] = { id, element_of(record) }
    end
  end
  return reply
end
if redis.call('EXISTS', meta) == 0 then return false end
if redis.call('HGET', meta, 'paused') then
  remember_reply(lane, number, '')
  return {}
end
redis.call('ZCARD', delivered)
redis.call('HLEN', popped)
redis.call('XLEN', events)
redis.call('HLEN', results)
redis.call('HLEN', slots)
redis.call('SCARD', waiters)

local reply, order, texts, ids = {}, {}, {}, {}
local records, stopped_early = take(count, kept, window_ms)
if #records == 0 and stopped_early then
  remember_reply(lane, number, LOOK_AGAIN)
  return -1
end
local first = redis.call('HINCRBY', meta, 'fence', #records) - #records + 1
for i, record in ipairs(records) do
  local id = is_record(record) and id_and_task(record) or 'unreadable-' .. digits(first + i - 1)
  ids[i], reply[i] = id, { id, element_of(record) }
  order[2 * i - 1], order[2 * i] = digits(first + i - 1), id
  texts[2 * i - 1], texts[2 * i] = id, digits(now_ms) .. ' 1 ' .. record
end
if #records > 0 then
  note_slots_of(records, function() return POPPED end)
  call_many('ZADD', delivered, order)
  call_many('HSET', popped, texts)
end
remember_reply(lane, number, table.concat(ids, ' '))
return reply
