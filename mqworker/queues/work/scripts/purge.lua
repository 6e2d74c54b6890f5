#!lua flags=allow-oom
-- purge: throw away what waits (ready, urgent, delayed) or what is dead. What is held is not touched.
-- Whoever waits for a message that is thrown away is told that it was cancelled.
--
-- KEYS     as in parts/keys.lua
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/calls.lua
-- ARGV[3]  events kept in the stream, about; ARGV[4] 'waiting' or 'dead'
-- ARGV[5]  how many of each line at the most, where each must be looked at; ARGV[6] window ms of chosen ids
-- Returns  {thrown away, left}; call again while something is left
-- Numbered because: a copy that comes late would throw away what was enqueued since.

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

local lane, number, kept, what = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local limit, window_ms = tonumber(ARGV[5]), tonumber(ARGV[6])

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then return same_answer(earlier) end
redis.call('XLEN', events) -- foreign types show themselves before the first write
redis.call('HLEN', letters)
redis.call('HLEN', parcels)
redis.call('ZCARD', deadlines)
redis.call('HLEN', results)
local has_waiters = redis.call('SCARD', waiters) > 0
local holes = tonumber(redis.call('HGET', meta, 'holes') or 0)
local has_guards = redis.call('HLEN', guards) > 0
local has_slots = redis.call('HLEN', slots) > 0
local dead_count = redis.call('ZCARD', dead)
local lengths = { redis.call('LLEN', ready), redis.call('ZCARD', urgent), redis.call('ZCARD', delayed) }

local gone = {}

-- Guards of messages that are held, or settled a while ago, stay: only what is thrown away lets go of its own.
local function throw(record)
  if record == HOLE then
    holes = holes - 1
    return 0
  end
  if not is_record(record) then return 1 end
  local id, mode = id_and_task(record), guard_mode(record)
  local is_watched = has_deadline(record) and tonumber(redis.call('ZSCORE', deadlines, id) or -1) == deadline_of(record)
  if is_watched then redis.call('ZREM', deadlines, id) end
  local was_reported = is_over(record, now_ms) and not is_watched
  if mode ~= '-' and not (was_reported and (mode == 'i' or mode == 'm')) then release_guard(record, id, window_ms) end
  if was_reported then forget_over(id) end
  if was_reported then holes = holes - 1 else gone[#gone + 1] = id end
  return was_reported and 0 or 1
end

local function tell_waiters()
  if not has_waiters or #gone == 0 then return end
  for i, is_awaited in ipairs(read_many('SMISMEMBER', waiters, gone)) do
    if is_awaited == 1 then redis.call('HSET', results, gone[i], 'C') end
  end
  announce(gone)
end

local function throw_some()
  local thrown = 0
  local scored = redis.call('ZPOPMIN', urgent, limit)
  for i = 1, #scored, 2 do thrown = thrown + throw(scored[i]) end
  for _, record in ipairs(redis.call('LPOP', ready, limit) or {}) do thrown = thrown + throw(record) end
  local ids = redis.call('ZRANGE', delayed, 0, limit - 1)
  if #ids > 0 then
    for _, record in ipairs(read_many('HMGET', parcels, ids)) do
      if record then thrown = thrown + throw(record) end
    end
    call_many('ZREM', delayed, ids)
    call_many('HDEL', parcels, ids)
  end
  redis.call('HSET', meta, 'holes', digits(holes))
  tell_waiters()
  free_slots_and_call(gone)
  return thrown, redis.call('LLEN', ready) + redis.call('ZCARD', urgent) + redis.call('ZCARD', delayed)
end

local thrown, left = 0, 0
if what == 'dead' then
  thrown = dead_count
  redis.call('UNLINK', dead, letters)
elseif has_guards or has_waiters or has_slots then
  thrown, left = throw_some()
else
  thrown = lengths[1] + lengths[2] + lengths[3] - holes
  redis.call('UNLINK', ready, urgent, delayed, parcels, deadlines)
  redis.call('HDEL', meta, 'holes')
end
if thrown > 0 then
  redis.call('HINCRBY', meta, 'purged', thrown)
  append_events(kept, { { event = 'purged', error_msg = what .. ' ' .. thrown } })
end
return answer(lane, number, { thrown, left })
