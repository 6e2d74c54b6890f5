#!lua flags=allow-oom
-- expire: report waiting messages whose deadline passed, so that nobody waits for them in vain.
-- A delayed one is removed; one in the ready line stays where it lies and is passed over when its turn comes.
--
-- KEYS     as in parts/keys.lua
-- ARGV[1]  events kept in the stream, about; ARGV[2] how many at the most; ARGV[3] window ms of chosen ids
-- Returns  how many expired; call again while it is what was asked for
-- Lock-free: whoever removes the id from the deadlines first has reported it.

-- @include slices
-- @include keys
-- @include clock
-- @include record
-- @include slots
-- @include guard
-- @include report
-- @include announce

local kept, limit, window_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])

local ids = redis.call('ZRANGE', deadlines, '-inf', digits(now_ms), 'BYSCORE', 'LIMIT', 0, limit)
if #ids == 0 then return 0 end
local records = read_many('HMGET', parcels, ids)
redis.call('ZCARD', delayed)
local has_guards = redis.call('HLEN', guards) > 0
redis.call('SCARD', over)
redis.call('HLEN', results)
redis.call('SCARD', waiters)
redis.call('XLEN', events)
redis.call('HLEN', slots)
redis.call('HGET', meta, 'holes')

call_many('ZREM', deadlines, ids)
local happened = {}
for i, id in ipairs(ids) do
  local record, event = records[i], { event = 'expired', task_id = id }
  if record then
    redis.call('ZREM', delayed, id)
    redis.call('HDEL', parcels, id)
    if guard_mode(record) ~= '-' then release_guard(record, id, window_ms, 'E') end
    local _, task = id_and_task(record)
    event.task = task
  else
    redis.call('HINCRBY', meta, 'holes', 1)
    -- Its record is out of reach, but the guard of a chosen id is known by the id.
    if redis.call('HDEL', guards, 'tree:' .. id) == 1 then leave_in_outbox(id .. '~parent', 'E') end
    if redis.call('HGET', guards, 'id:' .. id) == id .. ' 0' then
      redis.call('HSET', guards, 'id:' .. id, id .. ' ' .. digits(now_ms + window_ms))
    elseif redis.call('HEXISTS', guards, 'flow:' .. id) == 1 then
      leave_in_outbox(id, 'E')
    elseif has_guards then
      note_over(id)
    end
  end
  redis.call('HSET', results, id, 'E')
  happened[i] = event
end
redis.call('HINCRBY', meta, 'expired', #ids)
free_slots_and_call(ids) -- of those that were let in and lie in the line
append_events(kept, happened)
announce(ids)
return #ids
