#!lua
-- split: say for which recipients a topic's message is to be copied. The choice is made once.
--
-- KEYS[1]  recipients  hash   key -> 'status weight host port id'
-- KEYS[2]  copies      hash   id -> 'chosen key…' or 'stored key…'
-- ARGV[1]  id
-- Returns  {'chosen' or 'stored', key, ...}; {'nobody'} when none is alive
-- Atomic because: whoever repeats it after a crash must find the same recipients.

-- @include recipients

local recipients, copies, id = KEYS[1], KEYS[2], ARGV[1]
local choice = redis.call('HGET', copies, id)
if not choice then
  local alive = alive_recipients(recipients)
  if #alive == 0 then return { 'nobody' } end
  local keys = {}
  for i, each in ipairs(alive) do keys[i] = each.key end
  choice = 'chosen ' .. table.concat(keys, ' ')
  redis.call('HSET', copies, id, choice)
end
local words = {}
for word in string.gmatch(choice, '[^ ]+') do words[#words + 1] = word end
return words
