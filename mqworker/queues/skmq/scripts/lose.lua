#!lua flags=allow-oom
-- lose: mark a recipient that does not answer; it takes part again when it registers again.
--
-- KEYS[1]  recipients  hash   key -> 'status weight host port id'
-- ARGV[1]  key, ARGV[2] 'host port' that did not answer: it may have registered with another meanwhile
-- Returns  1 when it was alive
-- Repeatable: the second time finds it lost.

local recipients, key, address = KEYS[1], ARGV[1], ARGV[2]
local weight, host, port, id = string.match(redis.call('HGET', recipients, key) or '', '^alive (%d+) ([^ ]+) (%d+) (.+)$')
if not weight or host .. ' ' .. port ~= address then return 0 end
redis.call('HSET', recipients, key, table.concat({ 'lost', weight, host, port, id }, ' '))
return 1
