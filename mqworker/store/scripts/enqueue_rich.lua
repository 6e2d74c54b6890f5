#!lua
-- enqueue_rich: store messages of which some want more than their turn: a delay, a priority, a deadline, a guard.
-- All of them, or an error and none. (enqueue.lua is the quick road for plain ones.)
--
-- KEYS     as in parts/keys.lua
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/calls.lua
-- ARGV[3]  events kept in the stream, about
-- ARGV[4]  codec, ARGV[5] block: the `enqueued` events, in the order of the messages
-- ARGV[6..] the messages, eleven arguments each: id, priority, guard mode, guard key, guard ttl ms,
--          due ('' is now), deadline ('' is none), max crashes, gate ('' is none), task, body
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
local refusal = refusal_when_full(total)
if refusal then return refusal end
redis.call('HLEN', guards) -- foreign types show themselves before the first write
redis.call('ZCARD', deadlines)
redis.call('HLEN', parcels)
redis.call('ZCARD', gates)
redis.call('HLEN', results)
redis.call('HLEN', old_results)
redis.call('XLEN', events)
local soonest_ms = tonumber(redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2] or math.huge)

local stamp = digits(now_ms)
local placed, turned_away, void = {}, {}, {}

local function extras(deadline, gate)
  if deadline == '' then return gate == '' and '-' or 'g' end
  return gate == '' and 'd' or 'b'
end

local function store(index, id, priority, mode, guard, ttl_ms, due, deadline, max_crashes, gate, task, body)
  local holder = mode ~= '-' and guard_holder(guard)
  if holder then
    turned_away[#turned_away + 1] = index
    turned_away[#turned_away + 1] = holder
    void[#void + 1] = index
    return
  end
  local record = stamp .. priority .. mode .. extras(deadline, gate) .. max_crashes .. '00000000'
    .. id .. ' ' .. task .. ' '
    .. (mode == '-' and '' or guard .. ' ')
    .. (deadline == '' and '' or digits(instant_ms(deadline)) .. ' ')
    .. (gate == '' and '' or gate .. ' ')
    .. body
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
