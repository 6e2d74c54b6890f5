#!lua flags=allow-oom
-- rotate_results: drop results that were kept long enough, all of a period at once, at no cost per result.
-- Each lives for one period at least and two at the most; what is to be kept for a shorter time has its own end.
--
-- KEYS     as in parts/keys.lua
-- ARGV     none
-- Returns  {1 rotated or 0 too early, ms until it is worth asking again, as far as is known now}
-- Repeatable: a second call comes too early.

-- @include keys
-- @include clock
-- @include result_ends

local MOST_ENDED = 5000 -- in one call; more are due at the next one

local ended = redis.call('ZRANGE', result_ends, '-inf', digits(now_ms), 'BYSCORE', 'LIMIT', 0, MOST_ENDED)
for _, id in ipairs(ended) do
  for _, key in ipairs({ results, old_results }) do
    local result = redis.call('HGET', key, id)
    if result and string.sub(result, 1, 1) == 'S' then redis.call('HDEL', key, id) end
  end
  redis.call('ZREM', result_ends, id)
end

local next_end = redis.call('ZRANGE', result_ends, 0, 0, 'WITHSCORES')[2]
local function answer(rotated, in_ms)
  if next_end then in_ms = math.min(in_ms, tonumber(next_end) - now_ms) end
  return { rotated, math.min(math.max(0, in_ms), 2 ^ 53) }
end

local known = redis.call('HMGET', meta, 'results_ms', 'rotated_at_ms')
local results_ms, rotated_at_ms = tonumber(known[1] or 60000), tonumber(known[2] or 0)
redis.call('HLEN', old_results)
if redis.call('HLEN', results) == 0 and redis.call('HLEN', old_results) == 0 then return answer(0, results_ms) end
if now_ms - rotated_at_ms < results_ms then return answer(0, rotated_at_ms + results_ms - now_ms) end
redis.call('UNLINK', old_results)
if redis.call('EXISTS', results) == 1 then redis.call('RENAME', results, old_results) end
redis.call('HSET', meta, 'rotated_at_ms', digits(now_ms))
return answer(1, results_ms)
