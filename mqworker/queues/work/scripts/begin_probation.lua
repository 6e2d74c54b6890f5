#!lua flags=allow-oom
-- begin_probation: note that a delivery which was lost too often is about to run alone. If its consumer vanishes once
-- more before it has ended, reap.lua buries it.
--
-- KEYS     as in parts/keys.lua; KEYS[21] held, the hash of the consumer: fence -> record
-- ARGV[1]  fence
-- Returns  the record with its mark, or false when the lease was lost
-- Repeatable: a record that is marked stays as it is.

-- @include keys
-- @include clock
-- @include record

local held = KEYS[21]
local fence = ARGV[1]

local record = redis.call('HGET', held, fence)
if not record or not is_record(record) then return false end
record = on_probation(record)
redis.call('HSET', held, fence, record)
return record
