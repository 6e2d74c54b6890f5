#!lua flags=allow-oom
-- reclaim: return deliveries whose lease ended to the front of their line; bury those that crashed too often, and
-- end those that were asked to stop.
--
-- KEYS     as in parts/keys.lua; KEYS[21] held: fence -> record
-- ARGV[1]  events kept in the stream, about; ARGV[2] how many at the most; ARGV[3] window ms of chosen ids
-- Returns  {reclaimed or stopped, buried}; call again while their sum is what was asked for
-- Lock-free: whoever removes the lease first has reclaimed it; a second reclaimer finds nothing.

-- @include slices
-- @include keys
-- @include clock
-- @include record
-- @include place
-- @include slots
-- @include closing
-- @include limited
-- @include guard
-- @include report
-- @include announce
-- @include bury
-- @include stop

local held = KEYS[21]
local kept, limit, window_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local LONGEST_LEASE_MS = 400 * 24 * 3600 * 1000

-- The latest first: a batch goes in front of the one before it, so that the oldest end up foremost.
local fences = redis.call('ZRANGE', leases, digits(now_ms), '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, limit)
if #fences == 0 then -- an end that no claim can have set would hold its message for ever
  fences = redis.call('ZRANGE', leases, digits(now_ms + LONGEST_LEASE_MS), '+inf', 'BYSCORE', 'LIMIT', 0, limit)
end
if #fences == 0 then return { 0, 0 } end
table.sort(fences, function(one, other) return (tonumber(one) or 0) < (tonumber(other) or 0) end)
local records = read_many('HMGET', held, fences)
local was_idle = is_idle()
redis.call('ZCARD', deadlines)
redis.call('ZCARD', delayed)
redis.call('HLEN', parcels)
redis.call('ZCARD', all_limits)
redis.call('HLEN', slots)
redis.call('HLEN', guards)
redis.call('ZCARD', dead)
redis.call('HLEN', letters)
redis.call('HLEN', results)
redis.call('HLEN', old_results)
redis.call('SCARD', waiters)
redis.call('XLEN', events)
redis.call('HGET', meta, 'fence')

local front, happened, ended, buried, stopped = {}, {}, {}, 0, 0
for i = 1, #fences do
  local record = records[i]
  if record and is_record(record) then
    local id, task = id_and_task(record)
    local next_record = delivered_again(record, 0, 1)
    local deliveries, _, crashes = counts(next_record)
    local max_crashes = tonumber(string.sub(record, 17, 17), 36)
    local event = { event = 'reclaimed', task_id = id, task = task, attempt = deliveries }
    if is_stopped(id, record, window_ms) then
      stopped = stopped + 1
      event.event = 'cancelled'
      ended[#ended + 1] = id
    elseif max_crashes and crashes >= max_crashes then
      buried = buried + 1
      event.event = 'buried'
      event.error = 'crashed'
      ended[#ended + 1] = id
      local often = crashes == 1 and 'once' or crashes .. ' times'
      local letter = cjson.encode({ reason = 'crashed', error_msg = 'the lease ended ' .. often })
      bury(id, next_record, letter)
      if guard_mode(record) ~= '-' then release_guard(record, id, window_ms, 'D' .. letter) end
    else
      watch_deadline(id, next_record)
      front[#front + 1] = next_record
    end
    happened[#happened + 1] = event
  elseif record then
    buried = buried + 1
    bury('unreadable-' .. fences[i], record, cjson.encode({ reason = 'undecodable' }))
    happened[#happened + 1] = { event = 'buried', task_id = 'unreadable-' .. fences[i], error = 'undecodable' }
  end
end

call_many('HDEL', held, fences)
call_many('ZREM', leases, fences)
local reclaimed = #front
front = return_limited(front)
place_ready(front, 'LPUSH')
redis.call('HINCRBY', meta, 'reclaimed', reclaimed)
if buried > 0 then redis.call('HINCRBY', meta, 'buried', buried) end
if stopped > 0 then redis.call('HINCRBY', meta, 'cancelled', stopped) end
append_events(kept, happened)
announce(ended)
free_slots_and_call(ended) -- those that come back gave theirs back with their permit
if was_idle and #front > 0 then wake('ready') end
return { reclaimed + stopped, buried }
