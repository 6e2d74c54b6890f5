#!lua flags=allow-oom
-- settle: end deliveries whose lease is still held: done, once more, or buried.
--
-- KEYS     as in parts/keys.lua; KEYS[21] held, the hash of this consumer: fence -> record
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/calls.lua
-- ARGV[3]  events kept in the stream, about; ARGV[4] window ms in which an id chosen by the caller stays taken
-- ARGV[5]  codec, ARGV[6] block: one event for each delivery, in the order given
-- ARGV[7]  ms that results are kept; behind a space, if it is more, the longest that the application keeps any
-- ARGV[8]  how many are done, ARGV[9] in how many runs of fences, ARGV[10] how many results: none, one for all of
--          them, or one for each ('' is none to keep); then the runs, as first fence and length; then the results; then
--          the others, five arguments each:
--          'again', fence, due ('' is at once, at the front, limited ones among those of their limits), more failures, more crashes
--          (S, A to M: it is a suspect, see parts/record.lua)
--          'park', fence, due, mark of parts/parked.lua, 0
--          'bury', fence, letter (JSON), more failures, more crashes
-- Where slots of max_running become free, those who wait for them are let in here: the claim behind it finds them.
-- Returns  {position from 0, ...}: deliveries that were not settled, because their lease was lost
-- Atomic because: a crash between removal, result and event would hide the ack or show it twice.

-- @include slices
-- @include keys
-- @include clock
-- @include order
-- @include calls
-- @include record
-- @include place
-- @include parked
-- @include slots
-- @include closing
-- @include limited
-- @include admission
-- @include breaker
-- @include guard
-- @include report
-- @include bury
-- @include announce
-- @include result_ends

local held = KEYS[21]
local lane, number, kept, window_ms = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local codec, block = ARGV[5], ARGV[6]
local results_ms, longest_ms = string.match(ARGV[7], '^(%d+) ?(%d*)$')
results_ms, longest_ms = tonumber(results_ms), tonumber(longest_ms) or tonumber(results_ms)
local done_count, run_count, result_count = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local first_run, first_result = 11, 11 + 2 * run_count
local first_other, stride = first_result + result_count, 5

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then return cjson.decode(earlier) end

local fences = {} -- those of the done as numbers: quicker, and claim.lua gives out none that is too round for that
for at = first_run, first_result - 1, 2 do
  local first = tonumber(ARGV[at])
  -- Counted by offset: a fence that nobody ever got may be so large that adding one does not change it.
  for offset = 0, tonumber(ARGV[at + 1]) - 1 do fences[#fences + 1] = first + offset end
end
for at = first_other, #ARGV, stride do fences[#fences + 1] = ARGV[at + 1] end
local records = read_many('HMGET', held, fences)
local was_idle = is_idle()
local has_guards = redis.call('HLEN', guards) > 0
if has_guards then redis.call('HLEN', outbox) end
local has_ends = redis.call('ZCARD', leases) > 0
redis.call('XLEN', events) -- foreign types show themselves before the first write
redis.call('HGET', meta, 'fence')
redis.call('HLEN', results)
redis.call('HLEN', old_results)
local has_waiters = redis.call('SCARD', waiters) > 0
local has_slots = redis.call('HLEN', slots) > 0
if has_slots then redis.call('HLEN', bucket_times) end
if has_slots or #fences > done_count then
  redis.call('ZCARD', deadlines)
  redis.call('ZCARD', delayed)
  redis.call('HLEN', parcels)
  redis.call('ZCARD', dead)
  redis.call('HLEN', letters)
  redis.call('ZCARD', all_limits)
end

local lost, settled_fences, ended, kept_results, front, back = {}, {}, {}, {}, {}, {}
local cancelled, again, buried = {}, { retried = 0, crashed = 0, released = 0 }, 0

local was_delayed = false

local function free_guard(record, id, outcome)
  if guard_mode(record) ~= '-' then release_guard(record, id, window_ms, outcome) end
end

local function result_of(i)
  if result_count == 0 then return '' end
  return ARGV[result_count == 1 and first_result or first_result + i - 1]
end

local function outcome_of_done(record, i) -- only a workflow asks for it
  if guard_mode(record) ~= 'm' then return 'S' end
  return 'S' .. result_of(i)
end

for i = 1, done_count do
  local record = records[i]
  if not record then
    lost[#lost + 1] = i - 1
  elseif (has_guards or has_waiters) and is_record(record) then
    ended[#ended + 1] = id_of(record)
    free_guard(record, ended[#ended], outcome_of_done(record, i))
  end
end
local done = done_count - #lost

for i = 1, result_count > 0 and done_count or 0 do
  local record, result = records[i], result_of(i)
  if record and result ~= '' then
    local at = #kept_results
    kept_results[at + 1], kept_results[at + 2] = id_of(record), 'S' .. result
  end
end

for i = done_count + 1, #fences do
  local record, at = records[i], first_other + (i - done_count - 1) * stride
  local verdict, due_or_letter = ARGV[at], ARGV[at + 2]
  if not record then
    lost[#lost + 1] = i - 1
  elseif verdict == 'bury' or not is_record(record) then
    local id = is_record(record) and id_and_task(record) or 'unreadable-' .. fences[i]
    buried = buried + 1
    ended[#ended + 1] = id
    if is_record(record) then
      record = delivered_again(record, tonumber(ARGV[at + 3]), ARGV[at + 4])
      free_guard(record, id, verdict == 'bury' and 'D' .. due_or_letter)
    end
    bury(id, record, verdict == 'bury' and due_or_letter or cjson.encode({ reason = 'undecodable' }))
  else
    local id, task = id_and_task(record)
    local is_parked = verdict == 'park'
    local more_failures, more_crashes = is_parked and '0' or ARGV[at + 3], ARGV[at + 4]
    local next_record = delivered_again(record, tonumber(more_failures), more_crashes)
    local kind = more_failures ~= '0' and 'retried'
      or more_crashes ~= '0' and not is_suspicion(more_crashes) and 'crashed'
      or 'released'
    again[kind] = again[kind] + 1
    local wish = redis.call('HGET', results, id) or redis.call('HGET', old_results, id)
    if wish == 'X' then -- somebody cancelled it while it ran: it does not come back
      redis.call('HSET', results, id, 'C')
      free_guard(record, id)
      cancelled[#cancelled + 1] = { event = 'cancelled', task_id = id, task = task }
      ended[#ended + 1] = id
    elseif is_parked then
      watch_deadline(id, next_record)
      park(id, task, ARGV[at + 3], next_record, instant_ms(due_or_letter))
      was_delayed = true
    elseif due_or_letter == '' then
      watch_deadline(id, next_record)
      front[#front + 1] = next_record
    elseif instant_ms(due_or_letter) > now_ms then
      watch_deadline(id, next_record)
      place_delayed(id, next_record, instant_ms(due_or_letter))
      was_delayed = true
    elseif is_limited(record) then -- once more is one more start: it needs a permit like the first
      watch_deadline(id, next_record)
      place_limited(limits_of(record), id, next_record, 'RPUSH')
    else
      watch_deadline(id, next_record)
      back[#back + 1] = next_record
    end
  end
end

-- Everybody who is held no longer gives its slots back; so many who wait for them are let in as have run. What was
-- only released did not make room for anybody: the limiter is called, which asks whether there is any.
local function pass_slots_on()
  local ids, places, told, ran = {}, {}, {}, 0
  for i, record in ipairs(records) do
    if record and is_limited(record) then
      ids[#ids + 1] = id_of(record)
      places[#ids] = i
    end
  end
  free_slots(ids, function(position, limits)
    local i = places[position]
    local at = first_other + (i - done_count - 1) * stride
    local is_done, verdict = i <= done_count, ARGV[at]
    local has_crashed = not is_done and verdict ~= 'park' and ARGV[at + 4] ~= '0' and not is_suspicion(ARGV[at + 4])
    local has_failed = not is_done and verdict ~= 'park' and ARGV[at + 3] ~= '0'
    if is_done or has_failed or verdict == 'bury' then ran = ran + 1 end
    if (is_done or has_failed or has_crashed) and #parts_of(limits).breakers > 0 then
      local _, task = id_and_task(records[i])
      note_end_for_breakers(limits, task, not is_done, told)
    end
  end)
  append_events(kept, told)
  local is_paused = redis.call('HGET', meta, 'paused')
  local permit_ms = ran > 0 and not is_paused and redis.call('HGET', bucket_times, PERMIT_MS)
  local count, next_ms = 0, #woken_turns > 0 and 0 or -1
  if permit_ms then count, next_ms = admit(ran, tonumber(permit_ms)) end
  write_counts_and_turns()
  if next_ms >= 0 and next_ms < 1 then wake('limited') end
  return count
end

call_many('HDEL', held, fences)
if has_ends and #lost < #fences then
  -- Only of those that were held: a lost one may be somebody else's by now, with an end that must stay.
  for i, fence in ipairs(fences) do
    if records[i] then settled_fences[#settled_fences + 1] = fence end
  end
  call_many('ZREM', leases, settled_fences)
end
if #kept_results > 0 then
  call_many('HSET', results, kept_results)
  local period_ms = tonumber(redis.call('HGET', meta, 'results_ms') or 0)
  if longest_ms > period_ms then
    redis.call('HSET', meta, 'results_ms', digits(longest_ms)) -- rotate_results.lua goes by the longest
  end
  longest_ms = math.max(longest_ms, period_ms)
  if results_ms < longest_ms then
    for at = 1, #kept_results, 2 do redis.call('ZADD', result_ends, digits(now_ms + results_ms), kept_results[at]) end
  elseif redis.call('EXISTS', result_ends) == 1 then -- an id that was used before
    for at = 1, #kept_results, 2 do redis.call('ZREM', result_ends, kept_results[at]) end
  end
end
front = return_limited(front)
local let_in = has_slots and pass_slots_on() or 0 -- behind it: what comes back is in front of those who wait
if #front > 0 then place_ready(front, 'LPUSH') end
if #back > 0 then place_ready(back, 'RPUSH') end
if done > 0 then redis.call('HINCRBY', meta, 'succeeded', done) end
for kind, count in pairs(again) do
  if count > 0 then redis.call('HINCRBY', meta, kind, count) end
end
if buried > 0 then redis.call('HINCRBY', meta, 'buried', buried) end
if #cancelled > 0 then redis.call('HINCRBY', meta, 'cancelled', #cancelled) end
append_block(kept, #fences, codec, block, lost)
append_events(kept, cancelled)
if has_waiters then announce(ended) end
remember_reply(lane, number, #lost == 0 and '[]' or cjson.encode(lost))
if was_idle and #front + #back + let_in > 0 then wake('ready') end
if was_delayed then wake('delayed') end
return lost
