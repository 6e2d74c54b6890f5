#!lua flags=allow-oom
-- claim: receive messages under leases with fences, which foreign clients see as hidden messages.
--
-- KEYS     as in parts/queue.lua; KEYS[4] held: fence -> 'id rc', KEYS[5] leases: fence -> ends at, ms
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/side_calls.lua
-- ARGV[3]  how many at the most; ARGV[4] lease ms
-- Returns  {first fence, {{id, message, times received, first received at ms}, ...}}: fences count up from the
--          first; or 'queueNotFound'
-- Numbered because: a copy that comes late would take and count messages that nobody hears of.

-- @include slices
-- @include clock
-- @include queue
-- @include order
-- @include side_calls
-- @include take
-- @include leases

local lane, number, count, lease_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then
  local first, received = string.match(earlier, '^(%d+) (.*)$')
  return { tonumber(first), received_before(received) }
end
local queue = queue_settings()
if not queue then return 'queueNotFound' end
redis.call('ZCARD', leases) -- foreign types show themselves before the first write
redis.call('HLEN', held)
local found = visible(count)
if #found == 0 then
  remember_reply(lane, number, '0 ' .. as_received(found))
  return { 0, found }
end

local ends_at_ms = digits(now_ms + lease_ms)
local first = redis.call('HINCRBY', held, 'fence', #found) - #found + 1
local holding, ends = {}, {}
for i, entry in ipairs(found) do
  local fence = digits(first + i - 1)
  holding[2 * i - 1], holding[2 * i] = fence, entry[1] .. ' ' .. digits(entry[3])
  ends[2 * i - 1], ends[2 * i] = ends_at_ms, fence
end
call_many('HSET', held, holding)
call_many('ZADD', leases, ends)
mark_received(found, queue.total_received, ends_at_ms)
remember_reply(lane, number, digits(first) .. ' ' .. as_received(found))
return { first, found }
