#!lua flags=allow-oom
-- sample: note the counters of a queue, at most once a second, for the first that asks; while they stand still, only
-- every ten seconds, so that an idle queue costs next to nothing.
--
-- KEYS[1]  meta     hash   counters
-- KEYS[2]  samples  list   'at_ms entered left buried', the newest first
-- ARGV[1]  how many samples are kept
-- Returns  1 noted, 0 not worth it
-- Repeatable: the second call comes too early.

-- @include clock

local meta, samples = KEYS[1], KEYS[2]
local kept = tonumber(ARGV[1])

local counters = redis.call('HMGET', meta, 'enqueued', 'revived', 'succeeded', 'buried', 'cancelled', 'expired')
local function sum(first, last)
  local total = 0
  for i = first, last do total = total + (tonumber(counters[i] or 0) or 0) end
  return total
end

local values = digits(sum(1, 2)) .. ' ' .. digits(sum(3, 6)) .. ' ' .. digits(sum(4, 4))
local newest_ms, newest_values = string.match(redis.call('LINDEX', samples, 0) or '', '^(%d+) (.*)$')
if newest_ms then
  local is_same_second = math.floor(tonumber(newest_ms) / 1000) == math.floor(now_ms / 1000)
  local is_still = newest_values == values and now_ms - tonumber(newest_ms) < 10000
  if is_same_second or is_still then return 0 end
end
redis.call('LPUSH', samples, digits(now_ms) .. ' ' .. values)
redis.call('LTRIM', samples, 0, kept - 1)
return 1
