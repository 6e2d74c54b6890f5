#!lua
-- store_schedules: write schedules of one owner; of an app's code, in place of all that it had before.
--
-- KEYS     as in parts/keys.lua
-- ARGV[1]  owner: 'code:<app>', or 'data'
-- ARGV[2..] of each, four arguments: name, times (equal texts mean the same ticks), queue, JSON
-- Returns  {name, its owner, ...}: names that belong to somebody else, and were left alone
-- Atomic because: a name would belong to two, or stand in no index and never be looked at.
-- Repeatable: the same words again change nothing. Late copies are kept out by the link (decision 13).

-- @include clock
-- @include keys

local owner, first_schedule = ARGV[1], 2
local app = string.match(owner, '^code:(.*)$')

look_at_types()
local refused, is_given, given = {}, {}, {}
for at = first_schedule, #ARGV, 4 do
  local name, times, queue, json = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local _, known_owner = parts_of(redis.call('HGET', specs, name))
  if known_owner and known_owner ~= owner then
    refused[#refused + 1] = name
    refused[#refused + 1] = known_owner
  else
    store_schedule(name, owner, times, queue, json)
    is_given[name] = true
    given[#given + 1] = name
  end
end
if app then
  for name in string.gmatch(redis.call('HGET', owned, app) or '', '[^\n]+') do
    local _, known_owner = parts_of(redis.call('HGET', specs, name))
    if not is_given[name] and known_owner == owner then remove_schedule(name) end
  end
  if #given > 0 then redis.call('HSET', owned, app, table.concat(given, '\n')) else redis.call('HDEL', owned, app) end
  redis.call('HDEL', specs, app) -- all schedules of the app, as an earlier version wrote them
end
return refused
