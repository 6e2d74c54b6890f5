#!lua flags=allow-oom
-- delete: deleteMessage of RSMQ, for one message or several. A queue that is not there holds none of them.
--
-- KEYS     as in parts/queue.lua
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/side_calls.lua
-- ARGV[3..] ids
-- Returns  {1 for each that was deleted, 0 for each that was not there}
-- Atomic because: counts without their message would stay in the hash for ever.

-- @include clock
-- @include queue
-- @include order
-- @include side_calls

local lane, number, first_id = ARGV[1], ARGV[2], 3

local function verdicts_of(text)
  local verdicts = {}
  for i = 1, #text do verdicts[i] = string.byte(text, i) - 48 end
  return verdicts
end

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then return verdicts_of(earlier) end
local is_there = redis.call('HLEN', messages) > 0 -- also: a foreign type shows itself before the first write

local verdicts = {}
for at = first_id, #ARGV do
  local id = ARGV[at]
  local is_deleted = redis.call('ZREM', line, id) == 1 and redis.call('HDEL', messages, id, id .. ':rc', id .. ':fr') > 0
  verdicts[#verdicts + 1] = is_deleted and '1' or '0'
end
verdicts = table.concat(verdicts)
if is_there then remember_reply(lane, number, verdicts) end
return verdicts_of(verdicts)
