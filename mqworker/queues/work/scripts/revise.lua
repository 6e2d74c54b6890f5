#!lua
-- revise: give a dead letter another body. It stays dead; revive.lua puts it back in line.
--
-- KEYS     as in parts/keys.lua
-- ARGV[1]  id; ARGV[2] sha1 of the letter as whoever edits it has read it; ARGV[3] body
-- Returns  1 revised, or it was so already; 0 it is not a dead letter any more; -1 it is another one than was read
-- Repeatable: it compares before it writes.

-- @include keys
-- @include record

local id, sha, body = ARGV[1], ARGV[2], ARGV[3]

local stored = redis.call('HGET', letters, id)
local length, rest = string.match(stored or '', '^(%d+) (.*)$')
local record = length and string.sub(rest, tonumber(length) + 1)
if not record or not is_record(record) then return 0 end
local old_body = body_of(record)
if old_body == body then return 1 end
if redis.sha1hex(stored) ~= sha then return -1 end
redis.call('HSET', letters, id, string.sub(stored, 1, #stored - #old_body) .. body)
return 1
