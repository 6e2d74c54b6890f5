#!lua flags=allow-oom
-- request_cancel: ask that a message which somebody holds be stopped; it will not come back if it fails or is released.
--
-- KEYS     as in parts/keys.lua
-- ARGV[1]  id
-- Returns  1
-- Repeatable: asking twice is asking once. An outcome that is already there stands.

-- @include keys

local id = ARGV[1]

redis.call('HSETNX', results, id, 'X')
redis.call('SPUBLISH', meta, 'cancel ' .. id)
return 1
