#!lua flags=no-writes,allow-oom
-- peek: the header of a record that somebody holds, without its body.
--
-- KEYS[1]  held     hash    fence -> record, of one consumer
-- ARGV[1]  fence
-- Returns  the first bytes of the record, '' when it is not held

local held, fence = KEYS[1], ARGV[1]
return string.sub(redis.call('HGET', held, fence) or '', 1, 700)
