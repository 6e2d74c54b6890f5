#!lua flags=allow-oom
-- set_limit: say at run time how many messages of a limit run at once, or go by what the code says again.
--
-- KEYS     as in parts/keys.lua
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/calls.lua
-- ARGV[3]  the limit's name; ARGV[4] how many, '' for what the code says
-- Returns  1
-- Numbered because: a copy that comes late would undo what was set meanwhile.

-- @include slices
-- @include keys
-- @include clock
-- @include order
-- @include calls
-- @include slots

local lane, number, name, most = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then return same_answer(earlier) end
local home = home_of(name)
redis.call('HLEN', home .. 'set')
redis.call('HGET', meta, 'fence')
if most == '' then
  redis.call('HDEL', home .. 'set', name)
else
  redis.call('HSET', home .. 'set', name, most)
end
-- Who waits may go on now: the first has its turn, and each that finds a slot free wakes the next.
if wake_blocked(name, 1) > 0 then redis.call('SPUBLISH', meta, 'limited') end
write_counts_and_turns()
remember_reply(lane, number, cjson.encode({ 1 }))
return 1
