#!lua
-- begin_spawn: a running message spawns others: see that it is still held, and let its end be noted for its tree.
--
-- KEYS     as in parts/keys.lua; KEYS[21] held, the hash of this consumer: fence -> record
-- ARGV[1]  fence; ARGV[2..] starts of what was added to its workflow, for the outbox
-- Returns  1, 2 when it has spawned before, 0 when the lease was lost, -1 when somebody asked that the message be stopped
-- Repeatable: noting the same start again is noting it once. A copy that comes late finds nothing held.
-- Atomic because: what was begun by a message that had ended would wait for that end for ever.

-- @include slices
-- @include keys
-- @include clock
-- @include record
-- @include guard

local held = KEYS[21]
local fence, first_start = ARGV[1], 2

local record = redis.call('HGET', held, fence)
redis.call('HLEN', guards)
redis.call('HLEN', outbox)
if not record or not is_record(record) then return 0 end
local id = id_of(record)
local wish = redis.call('HGET', results, id) or redis.call('HGET', old_results, id)
if wish == 'X' then return -1 end

local has_spawned = is_parent(record)
if guard_mode(record) ~= 'm' and not has_spawned then
  redis.call('HSET', held, fence, as_parent(record, id))
  redis.call('HSET', guards, 'tree:' .. id, id .. ' 0')
end
for at = first_start, #ARGV do leave_in_outbox(ARGV[at], '') end
return has_spawned and 2 or 1
