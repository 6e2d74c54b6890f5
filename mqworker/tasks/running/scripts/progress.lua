#!lua
-- progress: keep how far a delivery has come. An overtaken delivery changes nothing: its fence is smaller.
--
-- KEYS[1]  progress  string 'fence done total', of one message
-- ARGV[1]  fence; ARGV[2] done; ARGV[3] total, '' when unknown; ARGV[4] ms that it is kept
-- Returns  1 kept, 0 overtaken
-- Repeatable: saying it twice is saying it once.

local progress = KEYS[1]
local fence, done, total, ttl_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local newest = string.match(redis.call('GET', progress) or '', '^(%d+) ')
if newest and tonumber(newest) > tonumber(fence) then return 0 end
redis.call('SET', progress, fence .. ' ' .. done .. ' ' .. total, 'PX', ttl_ms)
return 1
