#!lua flags=allow-oom
-- admit: let waiting messages into the front of the ready line, as many as their limits allow (parts/admission.lua).
--
-- KEYS     as in parts/keys.lua
-- ARGV[1]  how many at the most; ARGV[2] ms that a permit is valid, 0 for ever
-- Returns  {admitted, ms until the next turn of limits for which somebody waits, -1 for none}
-- Atomic because: a token that was taken and a message that did not get in would slow its limits down for ever.

-- @include slices
-- @include keys
-- @include clock
-- @include record
-- @include place
-- @include slots
-- @include closing
-- @include limited
-- @include admission

local room, valid_ms = tonumber(ARGV[1]), tonumber(ARGV[2])

local was_idle = is_idle()
redis.call('HLEN', parcels)
redis.call('ZCARD', delayed)
redis.call('HLEN', slots)
redis.call('HGET', meta, 'fence')
local admitted, next_ms = admit(room, valid_ms)
if admitted > 0 and was_idle then wake('ready') end
return { admitted, next_ms }
