#!lua flags=allow-oom
-- reap: release everything that a dead consumer holds. If it vanished, that is counted in each record as a
-- loss: which of it was running is not known. What was on probation is buried; what was asked to stop ends instead.
--
-- KEYS     as in parts/keys.lua; KEYS[21] held, the hash of the consumer: fence -> record
-- ARGV[1]  events kept in the stream, about; ARGV[2] how many at the most
-- ARGV[3]  consumer; ARGV[4] ms of silence from which on it counts as gone (0: it said so itself)
-- ARGV[5]  window ms of chosen ids
-- ARGV[6]  1 when the consumer vanished, 0 when its node took leave of it: nothing is counted then
-- ARGV[7]  until when its silence is certain, ms by this server (0: for ever): a reaper that was stopped after it had
--          found the consumer silent must not act on it later
-- Returns  released, stopped or buried, or -1 when the consumer is alive; call again while it is what was asked for
-- Lock-free: whoever removes the record first has released it; a second reaper finds nothing.

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
local kept, limit, consumer, silent_ms = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local window_ms, more_losses, valid_until_ms = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])

-- Its last claim or beat here. One that lies ahead was noted before the clock went back, and proves nothing.
local heard_at_ms = tonumber(redis.call('ZSCORE', consumers, consumer) or 0)
local is_ahead = heard_at_ms > now_ms + silent_ms
if heard_at_ms > now_ms - silent_ms and not is_ahead and silent_ms > 0 then return -1 end
if valid_until_ms > 0 and now_ms > valid_until_ms then return -1 end
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
local offer = redis.call('HGET', meta, 'offer')
if offer and string.match(offer, '^%S+') == consumer then redis.call('HDEL', meta, 'offer') end

local fences = redis.call('HKEYS', held)
if #fences == 0 then
  redis.call('ZREM', consumers, consumer)
  return 0
end
-- The latest first: a batch goes in front of the one before it, so that the oldest end up foremost.
table.sort(fences, function(one, other) return (tonumber(one) or 0) < (tonumber(other) or 0) end)
fences = values_from(fences, math.max(1, #fences - limit + 1))

local front, happened, ended, stopped, buried = {}, {}, {}, 0, 0
for _, record in ipairs(read_many('HMGET', held, fences)) do
  if not is_record(record) then
    front[#front + 1] = record
  else
    local id, task = id_and_task(record)
    local event = { event = 'reclaimed', task_id = id, task = task }
    local was_on_probation = more_losses > 0 and is_on_probation(record)
    record = delivered_again(record, 0, 0, more_losses)
    event.attempt = (counts(record))
    happened[#happened + 1] = event
    if is_stopped(id, record, window_ms) then
      stopped = stopped + 1
      event.event = 'cancelled'
      ended[#ended + 1] = id
    elseif was_on_probation then
      buried = buried + 1
      event.event = 'buried'
      event.error = 'lost'
      ended[#ended + 1] = id
      local losses = losses_of(record)
      local often = losses == 1 and 'once' or losses .. ' times'
      local story = 'its node vanished ' .. often .. ' while it had this message, the last time while '
        .. 'the message ran alone in a worker'
      local letter = cjson.encode({ reason = 'lost', error = 'NodeLost', error_msg = story })
      bury(id, record, letter)
      if guard_mode(record) ~= '-' then release_guard(record, id, window_ms, 'D' .. letter) end
    else
      watch_deadline(id, record)
      front[#front + 1] = record
    end
  end
end
call_many('HDEL', held, fences)
if redis.call('HLEN', held) == 0 then redis.call('ZREM', consumers, consumer) end
local released = #front
front = return_limited(front) -- which of it has started nobody knows: one more start needs one more permit
place_ready(front, 'LPUSH')
redis.call('HINCRBY', meta, 'reclaimed', released)
if stopped > 0 then redis.call('HINCRBY', meta, 'cancelled', stopped) end
if buried > 0 then redis.call('HINCRBY', meta, 'buried', buried) end
append_events(kept, happened)
announce(ended)
free_slots_and_call(ended) -- those that come back gave theirs back with their permit
if was_idle and #front > 0 then wake('ready') end
return released + stopped + buried
