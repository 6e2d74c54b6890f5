#!lua flags=no-writes,allow-oom
-- holder: which message of a queue holds a guard. Its holder lives; nothing else is proof of that.
--
-- KEYS[1]  guards   hash    guard key -> 'id expires_at_ms'
-- ARGV[1]  guard key
-- Returns  id, '' when nobody holds it

local guards, key = KEYS[1], ARGV[1]
return string.match(redis.call('HGET', guards, key) or '', '^([^ ]+) 0$') or ''
