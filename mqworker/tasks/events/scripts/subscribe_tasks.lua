#!lua
-- subscribe_tasks: an app says which of its tasks subscribe to a topic, in place of those it named before.
-- Events that were kept for want of subscribers go to all that there are then.
--
-- KEYS     as in parts/keys.lua
-- ARGV[1]  what the names of its subscribers begin with: 'app/'
-- ARGV[2..] of each: its name 'app/task', and its call
-- Returns  how many kept events were handed out
-- Atomic because: an event that is published meanwhile would find some of the tasks only.
-- Repeatable: the same words again change nothing.

-- @include clock
-- @include keys

local start, first_subscriber = ARGV[1], 2

look_at_types()
local given = {}
for at = first_subscriber, #ARGV, 2 do
  local name, call = ARGV[at], ARGV[at + 1]
  redis.call('HSET', subscribers, name, call)
  given[name] = true
end
for _, name in ipairs(redis.call('HKEYS', subscribers)) do
  if string.sub(name, 1, #start) == start and not given[name] then redis.call('HDEL', subscribers, name) end
end

local names, total = redis.call('HKEYS', subscribers), 0
if #names == 0 then return total end
for _, kept in ipairs(redis.call('LRANGE', backlog, 0, -1)) do
  local event, payload = string.match(kept, '^([^\n]+)\n(.*)$')
  if event then
    hand_out(event, payload, names)
    total = total + 1
  end
end
redis.call('DEL', backlog)
return total
