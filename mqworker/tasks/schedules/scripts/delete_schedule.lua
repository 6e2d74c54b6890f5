#!lua flags=allow-oom
-- delete_schedule: remove one schedule with all that is kept about it; nothing of it is fired that comes due from now on.
--
-- KEYS     as in parts/keys.lua
-- ARGV[1]  name, ARGV[2] whose it must be: an owner, or '' for anybody's
-- Returns  its owner, when that is another one and it stays; '' when it is gone; nil when there was none
-- Atomic because: what is left of half a schedule would be fired, or listed for ever.
-- Repeatable: a second one finds nothing. Late copies are kept out by the link (decision 13).

-- @include clock
-- @include keys

local name, expected_owner = ARGV[1], ARGV[2]

look_at_types()
local text = redis.call('HGET', specs, name)
if not text then return false end
local _, owner = parts_of(text)
if expected_owner ~= '' and owner and owner ~= expected_owner then return owner end
remove_schedule(name)
return ''
