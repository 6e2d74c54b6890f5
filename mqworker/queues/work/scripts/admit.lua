#!lua flags=allow-oom
-- admit: let waiting messages into the front of the ready line, as many as the buckets of their limits hold, tenant
-- after tenant.
--
-- Limits are written 'bucket=count/period ms/burst', joined by '|'; the messages with the same limits wait for the same
-- buckets. A bucket is the instant at which it would be full again (a token bucket kept as one number): it allows
-- `burst` starts at once and `count` in each period after that. Limits that begin with 'fair=weight~tenant' let in
-- so many at a time and then go behind all others: `limits` is in the order of turns, the score of one that could go
-- on at once is when it was last visited.
--
-- A start may follow its admission by as long as the permit is valid, so starts could come closer together than
-- admissions do. So much of the burst is held back: starts in any time are at most burst + rate * time (decision 16).
-- Never more than half of it, for a bucket that holds next to nothing loses what nobody takes at once.
--
-- Where the server's clock went back, a bucket is at worst empty, and all limits have their turn now.
--
-- KEYS     as in parts/keys.lua
-- ARGV[1]  how many at the most; ARGV[2] ms that a permit is valid, 0 for ever
-- Returns  {admitted, ms until the next token of limits for which somebody waits, -1 for none}
-- Atomic because: a token that was taken and a message that did not get in would slow its limits down for ever.

-- @include slices
-- @include keys
-- @include clock
-- @include record
-- @include place
-- @include limited

local room, valid_ms = tonumber(ARGV[1]), tonumber(ARGV[2])
local permit = digits(now_ms) .. '+' .. (valid_ms > 0 and digits(valid_ms) or '999999999')
local LAST_LOOK = '@at' -- no bucket is named so

-- The buckets of some limits, and how many messages all of them allow now.
local function buckets_of(limits)
  local buckets, allowed = {}, math.huge
  for bucket, count, period_ms, burst in string.gmatch(limits, '([^=|]+)=(%d+)/(%d+)/(%d+)') do
    local step_ms = tonumber(period_ms) / tonumber(count)
    burst = tonumber(burst)
    burst = math.max(1, burst / 2, burst - valid_ms / step_ms)
    local full_at_ms = math.max(now_ms, tonumber(redis.call('HGET', bucket_times, bucket) or 0))
    full_at_ms = math.min(full_at_ms, now_ms + burst * step_ms)
    buckets[#buckets + 1] = { name = bucket, step_ms = step_ms, full_at_ms = full_at_ms, burst = burst }
    -- 1e-6: a token that is due this millisecond must not be lost to the last bit of a double.
    allowed = math.min(allowed, math.floor((now_ms - full_at_ms) / step_ms + burst + 1e-6))
  end
  return buckets, allowed
end

local function next_token_at_ms(buckets)
  local at_ms = now_ms
  for _, bucket in ipairs(buckets) do
    at_ms = math.max(at_ms, bucket.full_at_ms - (bucket.burst - 1) * bucket.step_ms)
  end
  return at_ms
end

local LATEST_TURN_MS = now_ms + 0.998 -- turns of this millisecond follow one another in steps of a thousandth

local function as_score(ms)
  return string.format('%.3f', ms)
end

local was_idle = is_idle()
redis.call('HLEN', parcels)
redis.call('ZCARD', delayed)
redis.call('HGET', meta, 'fence')
local last_look_ms = tonumber(redis.call('HGET', bucket_times, LAST_LOOK) or 0)
if redis.call('ZCARD', all_limits) > 0 then
  if last_look_ms > now_ms then -- turns that lie in the future were meant by another clock
    for _, limits in ipairs(redis.call('ZRANGE', all_limits, '(' .. digits(now_ms), '+inf', 'BYSCORE')) do
      redis.call('ZADD', all_limits, digits(now_ms), limits)
    end
  end
  redis.call('HSET', bucket_times, LAST_LOOK, digits(now_ms))
end

local last_turn = redis.call('ZRANGE', all_limits, as_score(LATEST_TURN_MS), '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')
local turn_ms = math.max(now_ms, tonumber(last_turn[2] or 0))

local function next_turn_ms()
  turn_ms = math.min(turn_ms + 0.001, LATEST_TURN_MS)
  return turn_ms
end

-- Who got how much, for people who look at fairness: a sample, for a share is known from a part as well. In one
-- millisecond of four, and of a thousand tenants in each minute at the most.
local is_sampled, shares = now_ms % 4 == 0, string.sub(meta, 1, -5) .. 'shares:' .. digits(math.floor(now_ms / 60000))
local started_by_tenant = {}

local function note_shares()
  if next(started_by_tenant) == nil then return end
  local is_full = redis.call('HLEN', shares) >= 1000
  for tenant, started in pairs(started_by_tenant) do
    if not is_full or redis.call('HEXISTS', shares, tenant) == 1 then redis.call('HINCRBY', shares, tenant, started) end
  end
  redis.call('PEXPIRE', shares, 600000)
end

local admitted, tries = {}, 0
while #admitted < room and tries < 1000 do
  local limits = redis.call('ZRANGE', all_limits, '-inf', as_score(LATEST_TURN_MS), 'BYSCORE', 'LIMIT', 0, 1)[1]
  if not limits then break end
  tries = tries + 1
  local buckets, allowed = buckets_of(limits)
  local weight, taken = tonumber(string.match(limits, '^fair=(%d+)~') or math.huge), 0
  local ends_by_weight = weight < allowed
  allowed = math.min(allowed, weight)
  while taken < allowed and #admitted < room do
    local id = redis.call('LPOP', limited_key(limits))
    if not id then break end
    local record = redis.call('HGET', parcels, id) -- none when it was cancelled or expired while it waited
    if record then
      redis.call('HDEL', parcels, id)
      redis.call('ZREM', delayed, id)
      if #buckets > 0 then record = with_permit(record, permit) end
      admitted[#admitted + 1] = record
      taken = taken + 1
    end
  end
  for _, bucket in ipairs(buckets) do
    bucket.full_at_ms = bucket.full_at_ms + taken * bucket.step_ms
    redis.call('HSET', bucket_times, bucket.name, string.format('%.3f', bucket.full_at_ms))
  end
  if is_sampled and taken > 0 and weight < math.huge then
    local tenant = string.match(limits, '^fair=([^|]*)')
    started_by_tenant[tenant] = (started_by_tenant[tenant] or 0) + taken
  end
  if redis.call('LLEN', limited_key(limits)) == 0 then
    redis.call('ZREM', all_limits, limits)
  elseif ends_by_weight and taken > 0 then
    redis.call('ZADD', all_limits, as_score(next_turn_ms()), limits)
  else
    -- At least a millisecond on, so that other limits have their turn when there is no more room.
    redis.call('ZADD', all_limits, digits(math.max(now_ms + 1, math.ceil(next_token_at_ms(buckets)))), limits)
  end
end

note_shares()
if #admitted > 0 then
  place_ready(admitted, 'LPUSH')
  if was_idle then wake('ready') end
end
local soonest = redis.call('ZRANGE', all_limits, 0, 0, 'WITHSCORES')[2]
return { #admitted, soonest and math.max(0, tonumber(soonest) - now_ms) or -1 }
