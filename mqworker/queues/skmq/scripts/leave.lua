#!lua flags=allow-oom
-- leave: take a recipient off an app's list; it registered at another.
--
-- KEYS[1]  recipients  hash   key -> 'status weight host port id'
-- KEYS[2]  assigned    hash   key -> count
-- ARGV[1]  key
-- Returns  1 when it was there
-- Repeatable: the second time finds nothing.

local recipients, assigned, key = KEYS[1], KEYS[2], ARGV[1]
redis.call('HLEN', recipients) -- foreign types show themselves before the first write
redis.call('HDEL', assigned, key)
return redis.call('HDEL', recipients, key)
