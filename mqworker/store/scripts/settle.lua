#!lua flags=allow-oom
-- settle: end deliveries whose lease is still held: done, once more, or buried.
--
-- KEYS     as in parts/keys.lua; KEYS[14] held, the hash of this consumer: fence -> record
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/calls.lua
-- ARGV[3]  events kept in the stream, about; ARGV[4] window ms in which an id chosen by the caller stays taken
-- ARGV[5]  codec, ARGV[6] block: one event for each delivery, in the order given
-- ARGV[7]  how many are done, ARGV[8] how many of them have a result to keep; then the fences of the done,
--          then position (from 0) and result of each that has one; then the others, five arguments each:
--          'again', fence, due ('' is at once, at the front), more failures, more crashes
--          'bury', fence, letter (JSON), '', ''
-- Returns  {position from 0, ...}: deliveries that were not settled, because their lease was lost
-- Atomic because: a crash between removal, result and event would hide the ack or show it twice.

-- @include keys
-- @include clock
-- @include calls
-- @include record
-- @include place
-- @include guard
-- @include report
-- @include bury

local held = KEYS[14]
local lane, number, kept, window_ms = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local codec, block, done_count, result_count = ARGV[5], ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
local first_done, first_result = 9, 9 + done_count
local first_other, stride = first_result + 2 * result_count, 5

local earlier = earlier_reply(lane, number)
if earlier then return cjson.decode(earlier) end

local fences = { unpack(ARGV, first_done, first_done + done_count - 1) }
for at = first_other, #ARGV, stride do fences[#fences + 1] = ARGV[at + 1] end
local records = redis.call('HMGET', held, unpack(fences))
local was_idle = is_idle()
local has_guards = redis.call('HLEN', guards) > 0
local has_ends = redis.call('ZCARD', leases) > 0
redis.call('XLEN', events) -- foreign types show themselves before the first write
redis.call('HGET', meta, 'fence')
if result_count > 0 then redis.call('HLEN', results) end
if #fences > done_count then
  redis.call('ZCARD', deadlines)
  redis.call('ZCARD', delayed)
  redis.call('HLEN', parcels)
  redis.call('ZCARD', dead)
  redis.call('HLEN', graves)
end

local lost, kept_results, front, back = {}, {}, {}, {}
local retried, buried = 0, 0

local function free_guard(record, id)
  if guard_mode(record) ~= '-' then release_guard(record, id, window_ms) end
end

for i = 1, done_count do
  local record = records[i]
  if not record then
    lost[#lost + 1] = i - 1
  elseif has_guards then
    free_guard(record, (id_and_task(record)))
  end
end
local done = done_count - #lost

for at = first_result, first_other - 1, 2 do
  local record = records[tonumber(ARGV[at]) + 1]
  if record then
    kept_results[#kept_results + 1] = (id_and_task(record))
    kept_results[#kept_results + 1] = 'S' .. ARGV[at + 1]
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
    bury(id, record, verdict == 'bury' and due_or_letter or cjson.encode({ reason = 'undecodable' }))
    if is_record(record) then free_guard(record, id) end
  else
    local id = id_and_task(record)
    local next_record = delivered_again(record, tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4]))
    retried = retried + 1
    watch_deadline(id, next_record)
    if due_or_letter == '' then
      front[#front + 1] = next_record
    elseif instant_ms(due_or_letter) > now_ms then
      place_delayed(id, next_record, instant_ms(due_or_letter))
    else
      back[#back + 1] = next_record
    end
  end
end

redis.call('HDEL', held, unpack(fences))
if has_ends then redis.call('ZREM', leases, unpack(fences)) end
if #kept_results > 0 then redis.call('HSET', results, unpack(kept_results)) end
if #front > 0 then place_ready(front, 'LPUSH') end
if #back > 0 then place_ready(back, 'RPUSH') end
if done > 0 then redis.call('HINCRBY', meta, 'succeeded', done) end
if retried > 0 then redis.call('HINCRBY', meta, 'retried', retried) end
if buried > 0 then redis.call('HINCRBY', meta, 'buried', buried) end
append_block(kept, #fences, codec, block, lost)
remember_reply(lane, number, #lost == 0 and '[]' or cjson.encode(lost))
if was_idle and #front + #back > 0 then wake('ready') end
if retried > #front + #back then wake('delayed') end
return lost
