#!lua
-- enqueue_rich: store messages of which some want more than their turn: a delay, a priority, a deadline, a guard.
-- All of them, or an error and none. (enqueue.lua is the quick road for plain ones.)
--
-- KEYS     as in parts/keys.lua
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/calls.lua; for an outbox also which call it follows, 'number>earlier'
-- ARGV[3]  events kept in the stream, about
-- ARGV[4]  codec, ARGV[5] block: the `enqueued` events, in the order of the messages
-- ARGV[6..] the messages, four arguments each: terms, id, guard key, body. The terms, which many have in common, are
--          'priority guard_mode guard_ttl_ms max_crashes due deadline limits batch_key task', due '' for now, deadline,
--          limits and batch key '' for none; a guard mode after 's<ms>' belongs to the tick of a schedule, with the id
--          'schedule@tick', and is stored until that instant only: whoever looked at the schedule longer ago must look again
-- Returns  {index from 0, holder id, ...}: messages not stored because that holder has their guard
-- Errors   MQW_FULL when the queue's length limit would be passed; MQW_STALE when the call is late, does not follow the one that it
--          says, or holds a tick that comes too long after the look at its schedule
-- Atomic because: a batch is visible whole or not at all, and its event with it.

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
-- @include limit
-- @include guard
-- @include report
-- @include announce

local lane, kept, codec, block = ARGV[1], ARGV[3], ARGV[4], ARGV[5]
local number, follows = number_and_earlier(ARGV[2])
local first_message, stride = 6, 4

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then return cjson.decode(earlier) end
local out_of_order = refusal_unless_follows(lane, number, follows)
if out_of_order then return out_of_order end

local total = (#ARGV - first_message + 1) / stride
local was_idle = is_idle() or is_overlooked()
redis.call('HLEN', guards) -- foreign types show themselves before the first write
redis.call('ZCARD', deadlines)
redis.call('HLEN', parcels)
redis.call('ZCARD', all_limits)
redis.call('HLEN', results)
redis.call('HLEN', old_results)
redis.call('HLEN', ticks)
redis.call('SCARD', waiters)
redis.call('XLEN', events)
-- A schedule's tick is stored once, whoever fires it and however late: ticks of a schedule only go up. But for one that
-- lies in the future: the server's clock went back, and ticks go on by the new one.
local CLOCK_WENT_BACK_MS = 10000 -- as in model/schedule.py
local function is_new_tick(id)
  local schedule, tick = string.match(id, '^(.+)@(%d+)$')
  local newest_ms = tonumber(redis.call('HGET', ticks, schedule) or 0)
  return tonumber(tick) > newest_ms or newest_ms > now_ms + CLOCK_WENT_BACK_MS
end

local function note_tick(id)
  redis.call('HSET', ticks, string.match(id, '^(.+)@(%d+)$'))
end

-- Terms are read once, however many messages have them.
local TERMS = '^' .. string.rep('([^ ]*) ', 8) .. '([^ ]*)$'
local terms_by_text = {}
local function terms_of(text)
  local terms = terms_by_text[text]
  if terms then return terms end
  local priority, mode, ttl_ms, max_crashes, due, deadline, limits, batch_key, task = string.match(text, TERMS)
  local extras = deadline == '' and (limits == '' and '-' or 'l') or limits == '' and 'd' or 'b'
  if batch_key ~= '' then extras = extras == '-' and 'k' or string.upper(extras) end
  local tick_until = string.match(mode, '^s(%d+)')
  local is_tick = tick_until ~= nil
  mode = string.sub(mode, -1)
  terms = {
    mode = mode, is_tick = is_tick, is_stale = is_tick and now_ms > tonumber(tick_until), is_guarded = mode ~= '-', ttl_ms = tonumber(ttl_ms),
    due = due, has_deadline = deadline ~= '', limits = string.match(limits, '^[^&]*'),
    -- What stands in the record before its id, between id and guard, and before its body.
    header = priority .. mode .. extras .. max_crashes .. '00000000',
    task = ' ' .. task .. ' ',
    rest = (mode == '-' and '' or ' ')
      .. (deadline == '' and '' or digits(instant_ms(deadline)) .. ' ') .. (limits == '' and '' or limits .. ' ')
      .. (batch_key == '' and '' or batch_key .. ' '),
  }
  terms_by_text[text] = terms
  return terms
end

local function record_of(at_ms, terms, id, guard, body)
  return at_ms .. terms.header .. id .. terms.task .. guard .. terms.rest .. body
end

-- All guards of the batch are read with one command and taken with one.
local guard_by_key, taken = {}, {}
local function read_guards()
  local wanted = {}
  for at = first_message, #ARGV, stride do
    if terms_of(ARGV[at]).is_guarded then wanted[#wanted + 1] = ARGV[at + 2] end
  end
  if #wanted == 0 then return end
  for i, guard in ipairs(read_many('HMGET', guards, wanted)) do guard_by_key[wanted[i]] = guard end
end
read_guards()

local function holder_of(key, is_tick)
  -- A tick that is fired again, by a clock that went back, is another one: its id is not taken by the one that ended.
  if is_tick and string.sub(key, 1, 3) == 'id:' and not string.find(guard_by_key[key] or '', ' 0$') then return nil end
  return holder_by(guard_by_key[key], key)
end

local function take(key, guard)
  guard_by_key[key] = guard
  taken[#taken + 1] = key
  taken[#taken + 1] = guard
end

-- Keep last: whether the holder of a guard still waits for its instant.
local function is_replaceable(holder)
  local parcel, due_ms = redis.call('HGET', parcels, holder), redis.call('ZSCORE', delayed, holder)
  return parcel and due_ms and tonumber(due_ms) < PERMIT_NEEDED_MS and is_record(parcel)
end

local soonest_ms = tonumber(redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2] or math.huge)

-- Messages that would be stored: one whose guard is held takes no room, and neither does its own second in the batch.
local function newcomers()
  local count, is_taken = 0, {}
  for at = first_message, #ARGV, stride do
    local terms, id, guard = terms_of(ARGV[at]), ARGV[at + 1], ARGV[at + 2]
    local is_known = terms.is_tick and not is_new_tick(id)
      or terms.is_guarded and (is_taken[guard] or holder_of(guard, terms.is_tick))
    is_known = is_known and terms.mode ~= 'n' and (terms.mode ~= 'l' or is_taken[guard] or is_replaceable(holder_of(guard)))
    if not is_known then count = count + 1 end
    is_taken[guard] = terms.is_guarded
  end
  return count
end

-- The schedule may have been deleted since, and what this queue noted of it forgotten (tasks/schedules/).
local function refusal_when_stale()
  for at = first_message, #ARGV, stride do
    if terms_of(ARGV[at]).is_stale then return redis.error_reply('MQW_STALE the schedule was looked at too long ago') end
  end
end

local refusal = refusal_when_stale() or refusal_when_full(total) and refusal_when_full(newcomers())
if refusal then
  -- A batch of an outbox keeps its number until it is stored: whoever sends it again means the same.
  if not follows then remember_reply(lane, number, as_refused(refusal)) end
  return refusal
end

local stamp = digits(now_ms)
local placed, turned_away, void = {}, {}, {}

-- Keep last: the holder gets the arguments of the newer call and waits anew, but not past ttl_ms (0: for ever)
-- since it was enqueued. False when it waits no longer.
local function replace(holder, terms, guard, body)
  if not is_replaceable(holder) then return false end
  local parcel = redis.call('HGET', parcels, holder)
  local record = record_of(string.sub(parcel, 1, 13), terms, holder, guard, body)
  redis.call('ZREM', deadlines, holder)
  watch_deadline(holder, record)
  local put_off_ms = terms.due == '' and now_ms or instant_ms(terms.due)
  if terms.ttl_ms > 0 then
    put_off_ms = math.min(put_off_ms, tonumber(string.sub(parcel, 1, 13)) + terms.ttl_ms)
  end
  place_delayed(holder, record, put_off_ms)
  return true
end

-- Newest wins: whoever had the key ends. One that waits with an index is gone at once; one in the ready line when its turn
-- comes (parts/take.lua), for the line has no index; one that runs is asked to stop, and does not come back.
local superseded = {}
local function supersede(holder)
  local parcel = redis.call('HGET', parcels, holder)
  if not parcel then
    redis.call('HSETNX', results, holder, 'X')
    redis.call('SPUBLISH', meta, 'cancel ' .. holder)
    return
  end
  redis.call('ZREM', delayed, holder)
  redis.call('HDEL', parcels, holder)
  redis.call('ZREM', deadlines, holder)
  redis.call('HSET', results, holder, 'C')
  local task = is_record(parcel) and select(2, id_and_task(parcel)) or nil
  superseded[#superseded + 1] = { event = 'cancelled', task_id = holder, task = task }
end

local function report_superseded()
  if #superseded == 0 then return end
  redis.call('HINCRBY', meta, 'cancelled', #superseded)
  append_events(kept, superseded)
  local ids = {}
  for i, event in ipairs(superseded) do ids[i] = event.task_id end
  announce(ids)
end

local function store(index, terms, id, guard, body)
  local holder = terms.is_tick and not is_new_tick(id) and id
  if terms.is_tick and not holder then note_tick(id) end
  holder = holder or terms.is_guarded and holder_of(guard, terms.is_tick)
  if terms.mode == 'l' and holder and holder ~= id and not replace(holder, terms, guard, body) then holder = nil end
  if terms.mode == 'n' and holder then
    if holder ~= id then supersede(holder) end
    holder = nil
  end
  if holder then
    turned_away[#turned_away + 1] = index
    turned_away[#turned_away + 1] = holder
    void[#void + 1] = index
    return
  end
  local record = record_of(stamp, terms, id, guard, body)
  if terms.is_guarded then take(guard, guard_of_holder(terms.mode, id, terms.ttl_ms)) end
  if terms.mode == 'i' then -- what became of an earlier message of this id is not what becomes of this one
    redis.call('HDEL', results, id)
    redis.call('HDEL', old_results, id)
  end
  if terms.has_deadline then watch_deadline(id, record) end
  local due_ms = terms.due == '' and 0 or instant_ms(terms.due)
  if due_ms > now_ms then
    place_delayed(id, record, due_ms)
  elseif terms.limits ~= '' then
    place_limited(terms.limits, id, record, 'RPUSH')
  else
    placed[#placed + 1] = record
  end
end

for at = first_message, #ARGV, stride do
  store((at - first_message) / stride, terms_of(ARGV[at]), ARGV[at + 1], ARGV[at + 2], ARGV[at + 3])
end
if #taken > 0 then call_many('HSET', guards, taken) end
place_ready(placed, 'RPUSH')
redis.call('HINCRBY', meta, 'enqueued', total - #void)
append_block(kept, total, codec, block, void)
report_superseded()
remember_reply(lane, number, #turned_away == 0 and '[]' or cjson.encode(turned_away))

if was_idle and #placed > 0 then wake('ready') end
local now_soonest_ms = tonumber(redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2] or math.huge)
if now_soonest_ms < soonest_ms then wake('delayed') end
return turned_away
