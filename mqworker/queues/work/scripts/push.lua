#!lua
-- push: MQ.PUSH, append elements to the undelivered line; the queue gives them their ids.
--
-- KEYS     as in parts/keys.lua, then those of parts/rqueue.lua
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/calls.lua
-- ARGV[3]  events kept in the stream, about; ARGV[4..] elements
-- Returns  {id, ...}, one for each element, '<ms>-<seq>', greater than every id before
-- Errors   WRONGTYPE, MQW_FULL, MQW_MODEL where a queue of another model has this name
-- Atomic because: ids, elements and the newest id of the queue belong together.

-- @include slices
-- @include keys
-- @include clock
-- @include order
-- @include calls
-- @include record
-- @include place
-- @include limit
-- @include report
-- @include rqueue

local lane, number, kept, first_element = ARGV[1], ARGV[2], ARGV[3], 4

local function ids_from(ms, sequence, count)
  local ids = {}
  for i = 1, count do ids[i] = ms .. '-' .. digits(sequence + i - 1) end
  return ids
end

if holds_wrong_type() then return redis.error_reply(WRONG_TYPE) end
local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then
  local ms, sequence, count = string.match(earlier, '^(%d+) (%d+) (%d+)$')
  return ids_from(ms, tonumber(sequence), tonumber(count))
end

local model = redis.call('HGET', meta, 'model')
if model then return redis.error_reply('MQW_MODEL ' .. model) end
local was_idle, count = is_idle() or is_overlooked(), #ARGV - first_element + 1
local refusal = refusal_when_full(count)
if refusal then
  remember_reply(lane, number, as_refused(refusal))
  return refusal
end
redis.call('XLEN', events)

-- The clock may stand still or go back; ids never do.
local newest_ms = tonumber(redis.call('HGET', meta, 'newest_ms') or 0)
local newest_sequence = tonumber(redis.call('HGET', meta, 'newest_sequence') or 0)
local ms, sequence = now_ms, 1
if newest_ms >= now_ms then
  ms, sequence = newest_ms, newest_sequence + 1
end
local ids = ids_from(digits(ms), sequence, count)

local records, lines = {}, {}
for i, id in ipairs(ids) do
  records[i] = digits(now_ms) .. '0--' .. '-' .. '00000000' .. id .. ' - ' .. ARGV[first_element + i - 1]
  lines[i] = '{"event":"enqueued","task_id":"' .. id .. '"}'
end
call_many('RPUSH', ready, records)
redis.call('HSET', meta, 'newest_ms', digits(ms), 'newest_sequence', digits(sequence + count - 1))
redis.call('HINCRBY', meta, 'enqueued', count)
append_block(kept, count, 'j', table.concat(lines, '\n'), {})
remember_reply(lane, number, digits(ms) .. ' ' .. digits(sequence) .. ' ' .. count)
if was_idle then wake('ready') end
return ids
