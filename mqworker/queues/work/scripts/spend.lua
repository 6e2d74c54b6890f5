#!lua flags=allow-oom
-- spend: correct what a delivery costs of its rates by weight.
--
-- KEYS     as in parts/keys.lua; KEYS[21] held, the hash of this consumer: fence -> record
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/calls.lua
-- ARGV[3]  fence; ARGV[4] cost; ARGV[5..] which of its rates by weight, from 1
-- Returns  1, or 0 when the lease was lost
-- What was assumed stands in the record, and is replaced there: said twice it is taken once, and the next start of the
-- message assumes what was said. A bucket that was full meanwhile gets nothing back, for others have used it.
-- Numbered because: a copy that comes late would replace what was said since.

-- @include slices
-- @include keys
-- @include clock
-- @include order
-- @include calls
-- @include record
-- @include slots

local held = KEYS[21]
local lane, number, fence, cost, first_position = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), 5

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then return same_answer(earlier) end
local record = redis.call('HGET', held, fence)
redis.call('HLEN', bucket_times)
redis.call('ZCARD', all_limits)
if not record or not is_record(record) or not is_limited(record) then return answer(lane, number, 0) end

local limits, permit, before, last, costs = limits_field(record)
local turn_ms = tonumber(redis.call('ZSCORE', all_limits, limits) or 0)
local assumed, is_meant = {}, {}
for each in string.gmatch(costs, '[%d.]+') do assumed[#assumed + 1] = tonumber(each) end
for i = first_position, #ARGV do is_meant[tonumber(ARGV[i])] = true end

local position = 0
for bucket, count, period_ms in string.gmatch(limits, '([^=|<!]+)=(%d+)/(%d+)/%d+%*') do
  position = position + 1
  if is_meant[position] and assumed[position] then
    local more_ms = (cost - assumed[position]) * tonumber(period_ms) / tonumber(count)
    local full_at_ms = tonumber(redis.call('HGET', bucket_times, bucket) or 0)
    if more_ms > 0 or full_at_ms > now_ms then
      full_at_ms = math.max(now_ms, math.max(now_ms, full_at_ms) + more_ms)
      redis.call('HSET', bucket_times, bucket, string.format('%.3f', full_at_ms))
    end
    assumed[position] = cost
    -- Who waits for the same may have its turn sooner now; but not who waits for a slot.
    if more_ms < 0 and turn_ms > now_ms and turn_ms < BLOCKED_MS then redis.call('ZADD', all_limits, digits(now_ms), limits) end
  end
end
for i, each in ipairs(assumed) do assumed[i] = string.format('%.0f', each) end
local field = (permit and permit .. ';' or '') .. limits .. (#assumed > 0 and '&' .. table.concat(assumed, ',') or '')
redis.call('HSET', held, fence, string.sub(record, 1, before) .. field .. string.sub(record, last + 1))
return answer(lane, number, 1)
