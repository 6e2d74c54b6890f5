#!lua
-- register: let a recipient take part, or take part again.
--
-- KEYS[1]  recipients  hash   key -> 'status weight host port id'
-- KEYS[2]  assigned    hash   key -> count
-- ARGV[1]  key, ARGV[2] entry without its status
-- Returns  1
-- Repeatable: the second time writes the same.

local recipients, assigned = KEYS[1], KEYS[2]
local key, entry = ARGV[1], ARGV[2]
local known = redis.call('HGET', recipients, key)
redis.call('HLEN', assigned) -- a foreign type shows itself before the first write
redis.call('HSET', recipients, key, 'alive ' .. entry)
-- Everybody starts anew: a newcomer would get everything until it caught up.
if not known or string.sub(known, 1, 6) ~= 'alive ' then redis.call('DEL', assigned) end
return 1
