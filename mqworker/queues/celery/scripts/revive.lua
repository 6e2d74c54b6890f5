#!lua
-- revive: put dead letters back into Celery's lists, as they came, behind what waits there.
--
-- KEYS     as in parts/queue.lua
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/side_calls.lua
-- ARGV[3]  how many lists; ARGV[4..] ids
-- Returns  {1 for each that was put back, 0 for each that was not a dead letter}
-- Numbered because: a copy that comes late would revive what was buried again.

-- @include clock
-- @include queue
-- @include order
-- @include side_calls

local lane, number, list_count, first_id = ARGV[1], ARGV[2], tonumber(ARGV[3]), 4

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then return same_answer(earlier) end
check_types(list_count)

local verdicts = {}
for at = first_id, #ARGV do
  local id = ARGV[at]
  local stored = redis.call('HGET', dead, id)
  local list, message = string.match(stored or '', '^(%d+) %d+ %d+ %d+ %d+ (.*)$')
  verdicts[#verdicts + 1] = list and 1 or 0
  if list then
    redis.call('LPUSH', KEYS[FIRST_LIST + math.min(tonumber(list), list_count) - 1], message)
    redis.call('HDEL', dead, id)
    redis.call('HDEL', letters, id)
    redis.call('ZREM', buried, id)
  end
end
return answer(lane, number, verdicts)
