#!lua
-- enqueue_rich: store messages of which some want more than their turn: a delay, a priority, a deadline, a guard.
-- All of them, or an error and none. (enqueue.lua is the quick road for plain ones.)
--
-- KEYS     as in parts/keys.lua
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/calls.lua
-- ARGV[3]  events kept in the stream, about
-- ARGV[4]  codec, ARGV[5] block: the `enqueued` events, in the order of the messages
-- ARGV[6..] the messages, eleven arguments each: id, priority, guard mode, guard key, guard ttl ms,
--          due ('' is now), deadline ('' is none), max crashes, gate ('' is none), task, body;
--          a guard mode after an 's' belongs to the tick of a schedule, with the id 'schedule@tick'
-- Returns  {index from 0, holder id, ...}: messages not stored because that holder has their guard
-- Errors   MQW_FULL when the queue's length limit would be passed
-- Atomic because: a batch is visible whole or not at all, and its event with it.

-- @include keys
-- @include clock
-- @include calls
-- @include record
-- @include place
-- @include gate
-- @include limit
-- @include guard
-- @include report

local lane, number, kept, codec, block = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local first_message, stride = 6, 11

local earlier = earlier_reply(lane, number)
if earlier then return cjson.decode(earlier) end

local total = (#ARGV - first_message + 1) / stride
local was_idle = is_idle()
redis.call('HLEN', guards) -- foreign types show themselves before the first write
redis.call('ZCARD', deadlines)
redis.call('HLEN', parcels)
redis.call('ZCARD', gates)
redis.call('HLEN', results)
redis.call('HLEN', old_results)
redis.call('HLEN', ticks)
redis.call('XLEN', events)
-- A schedule's tick is stored once, whoever fires it and however late: ticks of a schedule only go up.
local function is_new_tick(id)
  local schedule, tick = string.match(id, '^(.+)@(%d+)$')
  return tonumber(tick) > tonumber(redis.call('HGET', ticks, schedule) or 0)
end

local function note_tick(id)
  redis.call('HSET', ticks, string.match(id, '^(.+)@(%d+)$'))
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
    local id, _, mode, guard = unpack(ARGV, at, at + 3)
    local is_known = #mode == 2 and not is_new_tick(id) or mode ~= '-' and (is_taken[guard] or guard_holder(guard))
    is_known = is_known and (mode ~= 'l' or is_taken[guard] or is_replaceable(guard_holder(guard)))
    if not is_known then count = count + 1 end
    is_taken[guard] = mode ~= '-'
  end
  return count
end

local refusal = refusal_when_full(total) and refusal_when_full(newcomers())
if refusal then return refusal end

local stamp = digits(now_ms)
local placed, turned_away, void = {}, {}, {}

local function extras(deadline, gate)
  if deadline == '' then return gate == '' and '-' or 'g' end
  return gate == '' and 'd' or 'b'
end

local function record_of(at_ms, id, priority, mode, guard, deadline, max_crashes, gate, task, body)
  return at_ms .. priority .. mode .. extras(deadline, gate) .. max_crashes .. '00000000'
    .. id .. ' ' .. task .. ' '
    .. (mode == '-' and '' or guard .. ' ')
    .. (deadline == '' and '' or digits(instant_ms(deadline)) .. ' ')
    .. (gate == '' and '' or gate .. ' ')
    .. body
end

-- Keep last: the holder gets the arguments of the newer call and waits anew, but not past max_wait_ms (0: for ever)
-- since it was enqueued. False when it waits no longer.
local function replace(holder, due, max_wait_ms, ...)
  if not is_replaceable(holder) then return false end
  local parcel = redis.call('HGET', parcels, holder)
  local record = record_of(string.sub(parcel, 1, 13), holder, ...)
  redis.call('ZREM', deadlines, holder)
  watch_deadline(holder, record)
  local put_off_ms = due == '' and now_ms or instant_ms(due)
  if max_wait_ms > 0 then put_off_ms = math.min(put_off_ms, tonumber(string.sub(parcel, 1, 13)) + max_wait_ms) end
  place_delayed(holder, record, put_off_ms)
  return true
end

local function store(index, id, priority, mode, guard, ttl_ms, due, deadline, max_crashes, gate, task, body)
  local is_tick = #mode == 2
  local holder = is_tick and not is_new_tick(id) and id
  if is_tick and not holder then note_tick(id) end
  mode = string.sub(mode, -1)
  holder = holder or mode ~= '-' and guard_holder(guard)
  if mode == 'l' and holder and holder ~= id
    and not replace(holder, due, tonumber(ttl_ms), priority, mode, guard, deadline, max_crashes, gate, task, body) then
    holder = nil
  end
  if holder then
    turned_away[#turned_away + 1] = index
    turned_away[#turned_away + 1] = holder
    void[#void + 1] = index
    return
  end
  local record = record_of(stamp, id, priority, mode, guard, deadline, max_crashes, gate, task, body)
  if mode ~= '-' then take_guard(mode, guard, id, tonumber(ttl_ms)) end
  if mode == 'i' then -- what became of an earlier message of this id is not what becomes of this one
    redis.call('HDEL', results, id)
    redis.call('HDEL', old_results, id)
  end
  watch_deadline(id, record)
  local due_ms = due == '' and 0 or instant_ms(due)
  if due_ms > now_ms then
    place_delayed(id, record, due_ms)
  elseif gate ~= '' then
    place_limited(gate, id, record)
  else
    placed[#placed + 1] = record
  end
end

for at = first_message, #ARGV, stride do
  store((at - first_message) / stride, unpack(ARGV, at, at + stride - 1))
end
place_ready(placed, 'RPUSH')
redis.call('HINCRBY', meta, 'enqueued', total - #void)
append_block(kept, total, codec, block, void)
remember_reply(lane, number, #turned_away == 0 and '[]' or cjson.encode(turned_away))

if was_idle and #placed > 0 then wake('ready') end
local now_soonest_ms = tonumber(redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2] or math.huge)
if now_soonest_ms < soonest_ms then wake('delayed') end
return turned_away
