#!lua flags=allow-oom
-- claim: receive messages under leases with fences, which foreign clients see as hidden messages.
--
-- KEYS     as in parts/rsmq_queue.lua; KEYS[4] held: fence -> 'id rc', KEYS[5] leases: fence -> ends at, ms
-- ARGV[1]  how many at the most; ARGV[2] lease ms
-- Returns  {first fence, {{id, message, times received, first received at ms}, ...}}: fences count up from the
--          first; or 'queueNotFound'
-- Not repeatable, as rsmq_receive is not: a lost reply's messages come back when their leases end.

-- @include clock
-- @include queue
-- @include take
-- @include leases

local count, lease_ms = tonumber(ARGV[1]), tonumber(ARGV[2])

local queue = queue_settings()
if not queue then return 'queueNotFound' end
redis.call('ZCARD', leases) -- foreign types show themselves before the first write
redis.call('HLEN', held)
local found = visible(count)
if #found == 0 then return { 0, found } end

local ends_at_ms = digits(now_ms + lease_ms)
local first = redis.call('HINCRBY', held, 'fence', #found) - #found + 1
local holding, ends = {}, {}
for i, entry in ipairs(found) do
  local fence = digits(first + i - 1)
  holding[2 * i - 1], holding[2 * i] = fence, entry[1] .. ' ' .. digits(entry[3])
  ends[2 * i - 1], ends[2 * i] = ends_at_ms, fence
end
redis.call('HSET', held, unpack(holding))
redis.call('ZADD', leases, unpack(ends))
mark_received(found, queue.total_received, ends_at_ms)
return { first, found }
