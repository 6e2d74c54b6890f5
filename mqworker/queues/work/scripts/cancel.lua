#!lua flags=allow-oom
-- cancel: take one waiting message out. The ready line has no index by id, so it is searched in windows, from
-- its back, where a message lies that was enqueued a moment ago; each window is one short call.
--
-- KEYS     as in parts/keys.lua
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/calls.lua
-- ARGV[3]  events kept in the stream, about; ARGV[4] window ms of chosen ids; ARGV[5] id
-- ARGV[6]  offset, ARGV[7] size: the window
-- Returns  1 cancelled, 0 not in this window, -1 not in this window and there is none behind it
-- Numbered because: a copy that comes late would take out a later message with the same chosen id.

-- @include slices
-- @include keys
-- @include clock
-- @include order
-- @include calls
-- @include record
-- @include slots
-- @include guard
-- @include report
-- @include announce

local lane, number, kept, window_ms, id = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local offset, size = tonumber(ARGV[6]), tonumber(ARGV[7])

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then return same_answer(earlier) end
redis.call('HLEN', guards)
redis.call('ZCARD', deadlines)
redis.call('HLEN', results)
redis.call('SCARD', waiters)
redis.call('XLEN', events)
redis.call('HLEN', slots)
redis.call('HGET', meta, 'holes')

local function cancelled(record)
  local _, task = id_and_task(record)
  if guard_mode(record) ~= '-' then release_guard(record, id, window_ms) end
  if has_deadline(record) then redis.call('ZREM', deadlines, id) end
  redis.call('HSET', results, id, 'C')
  redis.call('HINCRBY', meta, 'cancelled', 1)
  free_slots_and_call({ id })
  append_events(kept, { { event = 'cancelled', task_id = id, task = task } })
  announce({ id })
  return answer(lane, number, 1)
end

local function is_the_one(record)
  return string.sub(record, 26, 26 + #id) == id .. ' ' and is_record(record) and not is_over(record, now_ms)
end

local parcel = redis.call('HGET', parcels, id)
if parcel then
  redis.call('ZREM', delayed, id)
  redis.call('HDEL', parcels, id)
  return cancelled(parcel)
end

for _, record in ipairs(redis.call('ZRANGE', urgent, offset, offset + size - 1)) do
  if is_the_one(record) then
    redis.call('ZREM', urgent, record)
    return cancelled(record)
  end
end

local length = redis.call('LLEN', ready)
local last = length - 1 - offset
local first = math.max(0, last - size + 1)
if last >= 0 then
  for i, record in ipairs(redis.call('LRANGE', ready, first, last)) do
    if is_the_one(record) then
      redis.call('LSET', ready, first + i - 1, HOLE)
      redis.call('HINCRBY', meta, 'holes', 1)
      return cancelled(record)
    end
  end
end
local is_last = (first == 0 or last < 0) and redis.call('ZCARD', urgent) <= offset + size
return answer(lane, number, is_last and -1 or 0)
