#!lua flags=allow-oom
-- pause_schedule: fire nothing of a schedule that comes due from now on, or fire again from now on.
--
-- KEYS     as in parts/keys.lua
-- ARGV[1]  name, ARGV[2] '1' to pause it, '0' to let it go on
-- Returns  1 done, 0 it was so already, -1 there is no such schedule
-- Atomic because: a broker that looked before would put it back into the index, or keep it out.
-- Repeatable: the second time it is so already. Late copies are kept out by the link (decision 13).

-- @include clock
-- @include keys

local name, is_pause = ARGV[1], ARGV[2] == '1'

look_at_types()
local text = redis.call('HGET', specs, name)
if not parts_of(text) then return -1 end
local is_paused = string.match(redis.call('HGET', marks, name) or '', '^%d+$') ~= nil
if is_paused == is_pause then return 0 end
local revision = next_revision(name, is_pause and NEVER_MS or 0)
redis.call('HSET', marks, name, (is_pause and '' or '-') .. digits(now_ms))
redis.call('HSET', specs, name, revision .. string.match(text, ' .*$'))
return 1
