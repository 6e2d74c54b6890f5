#!lua flags=allow-oom
-- reap: release everything that a silent consumer holds, uncounted: which of it was running is not known.
--
-- KEYS     as in parts/keys.lua; KEYS[16] held, the hash of the consumer: fence -> record
-- ARGV[1]  events kept in the stream, about; ARGV[2] how many at the most
-- ARGV[3]  consumer; ARGV[4] ms of silence from which on it counts as gone (0: it said so itself)
-- Returns  released, or -1 when the consumer is alive; call again while it is what was asked for
-- Lock-free: whoever removes the record first has released it; a second reaper finds nothing.

-- @include keys
-- @include clock
-- @include record
-- @include place
-- @include report

local held = KEYS[16]
local kept, limit, consumer, silent_ms = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])

local last_beat_ms = redis.call('ZSCORE', consumers, consumer)
if last_beat_ms and tonumber(last_beat_ms) > now_ms - silent_ms then return -1 end
local was_idle = is_idle()
redis.call('ZCARD', deadlines)
redis.call('XLEN', events)
redis.call('HGET', meta, 'fence')

local fences = redis.call('HKEYS', held)
if #fences == 0 then
  redis.call('ZREM', consumers, consumer)
  return 0
end
-- The latest first: a batch goes in front of the one before it, so that the oldest end up foremost.
table.sort(fences, function(one, other) return (tonumber(one) or 0) < (tonumber(other) or 0) end)
fences = { unpack(fences, math.max(1, #fences - limit + 1)) }

local front, happened = {}, {}
for i, record in ipairs(redis.call('HMGET', held, unpack(fences))) do
  if is_record(record) then
    local id, task = id_and_task(record)
    record = delivered_again(record, 0, 0)
    watch_deadline(id, record)
    happened[#happened + 1] = { event = 'reclaimed', task_id = id, task = task, attempt = (counts(record)) }
  end
  front[i] = record
end
redis.call('HDEL', held, unpack(fences))
place_ready(front, 'LPUSH')
redis.call('HINCRBY', meta, 'reclaimed', #front)
append_events(kept, happened)
if was_idle then wake('ready') end
return #front
