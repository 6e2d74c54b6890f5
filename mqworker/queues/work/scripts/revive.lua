#!lua
-- revive: put dead letters back in line, limited ones to wait for a permit, as if they had just been enqueued: their counts begin anew.
--
-- KEYS     as in parts/keys.lua
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/calls.lua
-- ARGV[3]  events kept in the stream, about; ARGV[4..] ids
-- Returns  {id, ...}: those that were dead letters and are ready now
-- Numbered because: a copy that comes late would revive what was buried again.

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
-- @include guard
-- @include report

local lane, number, kept, first_id = ARGV[1], ARGV[2], ARGV[3], 4

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then return same_answer(earlier) end
local was_idle = is_idle()
redis.call('ZCARD', dead)
redis.call('ZCARD', delayed)
redis.call('HLEN', parcels)
redis.call('ZCARD', all_limits)
redis.call('HLEN', results)
redis.call('HLEN', old_results)
redis.call('HLEN', guards)
redis.call('XLEN', events)
redis.call('HGET', meta, 'fence')
local revived, back, happened = {}, {}, {}
for i = first_id, #ARGV do
  local id = ARGV[i]
  local stored = redis.call('HGET', letters, id)
  local length, rest = string.match(stored or '', '^(%d+) (.*)$')
  local record = length and string.sub(rest, tonumber(length) + 1)
  if record and is_record(record) then
    local _, task = id_and_task(record)
    revived[#revived + 1] = id
    -- A deadline that passed would bury it again at once, so it is dropped: whoever revives wants it to run.
    local extras = is_limited(record) and 'l' or '-'
    if has_batch_key(record) then extras = extras == '-' and 'k' or 'L' end
    local text = digits(now_ms) .. string.sub(record, 14, 15) .. extras
      .. string.sub(record, 17, 17) .. '00000000'
    local rest_of_record = string.sub(record, 26)
    if has_deadline(record) then
      rest_of_record = string.gsub(rest_of_record, ' ' .. digits(deadline_of(record)) .. ' ', ' ', 1)
    end
    text = text .. rest_of_record
    if is_limited(text) then
      place_limited(limits_of(text), id, text, 'RPUSH')
    else
      back[#back + 1] = text
    end
    happened[#happened + 1] = { event = 'revived', task_id = id, task = task }
    redis.call('ZREM', dead, id)
    redis.call('HDEL', letters, id)
    redis.call('HDEL', results, id)
    redis.call('HDEL', old_results, id)
    take_guard_again(record, id)
  end
end
place_ready(back, 'RPUSH')
if #revived > 0 then redis.call('HINCRBY', meta, 'revived', #revived) end
append_events(kept, happened)
if was_idle and #back > 0 then wake('ready') end
return answer(lane, number, revived)
