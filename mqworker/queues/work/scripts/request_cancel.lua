#!lua flags=allow-oom
-- request_cancel: ask to stop a message that a consumer holds; it will not come back if it fails or is released.
--
-- KEYS     as in parts/keys.lua
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/calls.lua
-- ARGV[3]  id
-- ARGV[4]  'cancel': let the task stop; 'kill': end the worker that runs it
-- Returns  1
-- An outcome that is already there stands. Numbered because: a copy that comes late would stop a later message with
-- the same chosen id.

-- @include keys
-- @include clock
-- @include order
-- @include calls

local lane, number, id, how = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then return same_answer(earlier) end
redis.call('HSETNX', results, id, 'X')
redis.call('SPUBLISH', meta, how .. ' ' .. id)
return answer(lane, number, 1)
