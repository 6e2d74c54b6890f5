#!lua flags=allow-oom
-- outstanding: how many copies of a topic's message are not settled. To be asked once they were stored.
--
-- KEYS[1]  copies   hash    id -> 'chosen key…' or 'stored key…'
-- KEYS[2]  guards   hash    guard key -> 'id expires_at_ms', of the queue
-- ARGV[1]  id
-- Returns  how many; with 0 the choice is forgotten
-- Repeatable: without a choice there is nothing outstanding.

local copies, guards, id = KEYS[1], KEYS[2], ARGV[1]
local choice = redis.call('HGET', copies, id)
if not choice then return 0 end
local keys, living = string.match(choice, '^%a+ (.*)$'), 0
for key in string.gmatch(keys, '[^ ]+') do
  local guard = redis.call('HGET', guards, 'id:' .. id .. '~' .. key)
  if guard and string.match(guard, ' 0$') then living = living + 1 end
end
if living == 0 then
  redis.call('HDEL', copies, id)
else
  redis.call('HSET', copies, id, 'stored ' .. keys)
end
return living
