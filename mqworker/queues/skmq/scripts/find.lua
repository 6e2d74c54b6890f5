#!lua flags=no-writes,allow-oom
-- find: look messages up in the index.
--
-- KEYS[1]  index    hash    field -> 'at_ms queue id [consumer fence]'
-- ARGV     fields
-- Returns  {entry or '', ...}

-- @include slices

local index = KEYS[1]
local found = read_many('HMGET', index, ARGV)
for i = 1, #ARGV do found[i] = found[i] or '' end
return found
