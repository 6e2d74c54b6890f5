#!lua flags=allow-oom
-- configure: set or clear switches of a queue (paused, limit) and wake whoever may go on now.
--
-- KEYS     as in parts/keys.lua
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/calls.lua
-- ARGV[3..] name, value, ... ('' clears)
-- Returns  'OK'
-- Numbered because: a copy that comes late would undo what was switched meanwhile.

-- @include keys
-- @include clock
-- @include order
-- @include calls

local lane, number, first_switch = ARGV[1], ARGV[2], 3

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then return same_answer(earlier) end
redis.call('HDEL', meta, 'offer') -- a paused queue hands nothing over; otherwise whoever is idle offers again
for i = first_switch, #ARGV, 2 do
  local name, value = ARGV[i], ARGV[i + 1]
  if value == '' then
    redis.call('HDEL', meta, name)
  else
    redis.call('HSET', meta, name, value)
  end
end
redis.call('SPUBLISH', meta, 'ready')
return answer(lane, number, redis.status_reply('OK'))
