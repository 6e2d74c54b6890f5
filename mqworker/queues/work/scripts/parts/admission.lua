-- admission: lets waiting messages into the front of the ready line, as many as their limits allow, tenant after tenant.
--
-- Limits are written one after another, joined by '|'; messages with the same text wait for the same:
--   fair=weight~tenant        so many at a time, and then behind all others
--   name<=most                so many run at once (parts/slots.lua)
--   name!failures/within ms/closed for ms   a circuit breaker (parts/closing.lua)
--   bucket=count/period ms/burst   a rate; with a '*' behind it each message says what it costs, instead of one
--
-- A bucket is the instant at which it would be full again (a token bucket kept as one number): it allows `burst` starts
-- at once and `count` in each period after that. `limits` is in the order of turns: the score of one that could go on at
-- once is when it was last visited, of one that waits for a token when that comes, of one that waits for a slot BLOCKED_MS.
-- The last kind stands in `blocked` of that limit, in the order of turns. While a slot is free, nothing that could use it
-- is left there: whatever frees a slot wakes the next, and so does each visit that leaves one free.
--
-- A start may follow its admission by as long as the permit is valid, so starts could come closer together than
-- admissions do. So much of the burst is held back: starts in any time are at most burst + rate * time (decision 16).
-- Never more than half of it, for a bucket that holds next to nothing loses what nobody takes at once.
--
-- Where the server's clock went back, a bucket is at worst empty, and all limits have their turn now.
-- A message that costs more than the burst starts when the bucket is full, and the bucket owes what it lacked.
-- Needs: slices, keys, clock, record, place, slots, closing, limited.

local LAST_LOOK, PERMIT_MS = '@at', '@permit' -- fields of the buckets: no bucket is named so
local LAST_BIT = 1e-6 -- a token that is due this millisecond must not be lost to the last bit of a double
local MOST_OWED = 100 -- how many times its burst a bucket by weight may lack, at most

-- Up to `room` messages, with permits that are valid so long, 0 for ever. Returns how many, and the ms until the next
-- turn of limits for which somebody waits, -1 for none. All keys were read by a command of their type before.
local function admit(room, valid_ms)
  local permit_until_ms = now_ms + (valid_ms > 0 and valid_ms or 999999999)
  local permit = digits(now_ms) .. '+' .. digits(permit_until_ms - now_ms)
  local LATEST_TURN_MS = now_ms + 0.998 -- turns of this millisecond follow one another in steps of a thousandth

  local function as_score(ms)
    return string.format('%.3f', ms)
  end

  -- The buckets of some limits as they are now, and how many messages all of them allow.
  local function buckets_of(parts)
    local buckets, allowed = {}, math.huge
    for i, bucket in ipairs(parts.buckets) do
      local step_ms, is_weighted = bucket.step_ms, bucket.is_weighted
      local burst = math.max(1, bucket.burst / 2, bucket.burst - valid_ms / step_ms)
      local full_at_ms = math.max(now_ms, tonumber(redis.call('HGET', bucket_times, bucket.name) or 0))
      full_at_ms = math.min(full_at_ms, now_ms + (is_weighted and MOST_OWED or 1) * burst * step_ms)
      local tokens = (now_ms - full_at_ms) / step_ms + burst + LAST_BIT
      buckets[i] = {
        name = bucket.name, step_ms = step_ms, full_at_ms = full_at_ms, burst = burst, tokens = tokens,
        is_weighted = is_weighted, needed = 1,
      }
      if not is_weighted then allowed = math.min(allowed, math.floor(tokens)) end
    end
    return buckets, allowed
  end

  local function next_token_at_ms(buckets)
    local at_ms = now_ms
    for _, bucket in ipairs(buckets) do
      at_ms = math.max(at_ms, bucket.full_at_ms - (bucket.burst - math.min(bucket.needed, bucket.burst)) * bucket.step_ms)
    end
    return at_ms
  end

  -- Takes what a message costs out of the buckets; false, and nothing is taken, where they do not hold so much.
  local function pay(buckets, record)
    local _, _, _, _, costs = limits_field(record)
    local next_cost, cost_of = string.gmatch(costs, '[%d.]+'), {}
    for i, bucket in ipairs(buckets) do
      cost_of[i] = bucket.is_weighted and tonumber(next_cost() or 1) or 1
      bucket.needed = bucket.is_weighted and cost_of[i] or 1
      if math.min(cost_of[i], bucket.burst) > bucket.tokens then return false end
    end
    for i, bucket in ipairs(buckets) do
      bucket.tokens = bucket.tokens - cost_of[i]
      bucket.full_at_ms = bucket.full_at_ms + cost_of[i] * bucket.step_ms
    end
    return true
  end

  -- What was set at run time counts, not what the producer wrote.
  local has_set = {}
  local function most_of(name, most)
    if most == '' then -- of a breaker: one may try while the key is half open
      local _, is_half_open = closed_until_ms(string.sub(name, 1, -2))
      return is_half_open and 1 or math.huge
    end
    local home = home_of(name)
    if has_set[home] == nil then has_set[home] = redis.call('EXISTS', home .. 'set') == 1 end
    return tonumber(has_set[home] and redis.call('HGET', home .. 'set', name) or most)
  end

  -- How many messages all the limits allow on how many run at once; and the name of one that is full then.
  local function allowed_by_slots(parts)
    local allowed, counted = math.huge, parts.counted
    for at = 1, #counted, 2 do allowed = math.min(allowed, most_of(counted[at], counted[at + 1]) - running(counted[at])) end
    return allowed
  end

  local function full_slot(parts)
    local counted = parts.counted
    for at = 1, #counted, 2 do
      if running(counted[at]) >= most_of(counted[at], counted[at + 1]) then return counted[at] end
    end
  end

  local last_look_ms = tonumber(redis.call('HGET', bucket_times, LAST_LOOK) or 0)
  if redis.call('ZCARD', all_limits) > 0 then
    if last_look_ms > now_ms then -- turns that lie in the future were meant by another clock
      local ahead = redis.call('ZRANGE', all_limits, '(' .. digits(now_ms), '(' .. digits(BLOCKED_MS), 'BYSCORE')
      for _, limits in ipairs(ahead) do redis.call('ZADD', all_limits, digits(now_ms), limits) end
    end
    redis.call('HSET', bucket_times, LAST_LOOK, digits(now_ms), PERMIT_MS, digits(valid_ms))
  end

  local last_turn = redis.call('ZRANGE', all_limits, as_score(LATEST_TURN_MS), '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')
  local turn_ms = math.max(now_ms, tonumber(last_turn[2] or 0))

  local function next_turn_ms()
    turn_ms = math.min(turn_ms + 0.001, LATEST_TURN_MS)
    return turn_ms
  end

  -- Who got how much, for people who look at fairness: a sample, for a share is known from a part as well. In one
  -- millisecond of four, and of a thousand tenants in each minute at the most.
  local is_sampled, shares = now_ms % 4 == 0, queue_prefix .. 'shares:' .. digits(math.floor(now_ms / 60000))
  local started_by_tenant = {}

  local function note_shares()
    if next(started_by_tenant) == nil then return end
    local is_crowded = redis.call('HLEN', shares) >= 1000
    for tenant, started in pairs(started_by_tenant) do
      if not is_crowded or redis.call('HEXISTS', shares, tenant) == 1 then redis.call('HINCRBY', shares, tenant, started) end
    end
    redis.call('PEXPIRE', shares, 600000)
  end

  local admitted, taken_ids, occupied, is_taken = {}, {}, {}, {}
  local due -- the first in the order of turns, with its turn; empty when none is due

  -- Takes up to so many out of the list of these limits.
  local function take_waiting(limits, key, most, buckets, parts)
    local taken = 0
    while taken < most and #admitted < room do
      local id = redis.call('LPOP', key)
      if not id then break end
      -- None when it was cancelled or expired while it waited.
      local record = not is_taken[id] and redis.call('HGET', parcels, id)
      if record and #buckets > 0 and not pay(buckets, record) then
        redis.call('LPUSH', key, id)
        break
      end
      if record then
        is_taken[id] = true
        taken_ids[#taken_ids + 1] = id
        if parts.needs_permit then record = with_permit(record, permit) end
        if #parts.counted > 0 then
          occupied[#occupied + 1] = id
          occupied[#occupied + 1] = '+' .. digits(permit_until_ms) .. ' ' .. limits
        end
        admitted[#admitted + 1] = record
        taken = taken + 1
      end
    end
    return taken
  end

  -- Says when these limits have their next turn; `was_blocked`: their score says so already.
  local function schedule(limits, key, buckets, parts, has_had_its_weight, closed_ms, was_blocked)
    if redis.call('LLEN', key) == 0 then
      redis.call('ZREM', all_limits, limits)
      return
    end
    local full = closed_ms == 0 and full_slot(parts)
    if closed_ms > 0 then
      redis.call('ZADD', all_limits, digits(closed_ms), limits)
    elseif full then
      if not was_blocked then redis.call('ZADD', all_limits, digits(BLOCKED_MS), limits) end
      redis.call('RPUSH', home_of(full) .. 'blocked:' .. full, as_score(next_turn_ms()) .. ' ' .. limits .. ' ' .. queue_prefix)
    elseif has_had_its_weight then
      if due and not due[1] then due = nil end
      redis.call('ZADD', all_limits, as_score(next_turn_ms()), limits)
    else
      -- At least a millisecond on, so that other limits have their turn when there is no more room.
      redis.call('ZADD', all_limits, digits(math.max(now_ms + 1, math.ceil(next_token_at_ms(buckets)))), limits)
    end
  end

  local function visit(limits, was_blocked)
    local parts, key = parts_of(limits), limited_key(limits)
    local buckets, by_rate = buckets_of(parts)
    local closed_ms = limits_closed_until_ms(limits)
    local allowed, weight = closed_ms > 0 and 0 or math.min(by_rate, allowed_by_slots(parts)), parts.weight
    local taken = take_waiting(limits, key, math.min(allowed, weight), buckets, parts)
    for _, bucket in ipairs(buckets) do
      redis.call('HSET', bucket_times, bucket.name, string.format('%.3f', bucket.full_at_ms))
    end
    local counted = parts.counted
    for at = 1, taken > 0 and #counted or 0, 2 do count_more(counted[at], taken) end
    if is_sampled and taken > 0 and weight < math.huge then
      local tenant = string.match(limits, '^fair=([^|]*)')
      started_by_tenant[tenant] = (started_by_tenant[tenant] or 0) + taken
    end
    schedule(limits, key, buckets, parts, weight < allowed and taken > 0, closed_ms, was_blocked)
    for at = 1, #counted, 2 do
      if running(counted[at]) < most_of(counted[at], counted[at + 1]) then wake_blocked(counted[at], 1) end
    end
  end

  -- The next limits whose turn it is: of those that were woken in this call, and of those in the order of turns. What was
  -- read there stays valid until it is visited, for whatever is put there has a later turn.
  local function next_due()
    due = due or redis.call('ZRANGE', all_limits, '-inf', as_score(LATEST_TURN_MS), 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
    local woken = woken_turns[1]
    if woken and not (due[1] and tonumber(due[2]) < tonumber(woken[1])) then
      table.remove(woken_turns, 1)
      return woken[2], true
    end
    local limits = due[1]
    due = nil
    return limits, false
  end

  local visits = 0
  while #admitted < room and visits < 1000 do
    local limits, was_blocked = next_due()
    if not limits then break end
    visits = visits + 1
    visit(limits, was_blocked)
  end
  call_many('HDEL', parcels, taken_ids)
  call_many('ZREM', delayed, taken_ids)
  occupy(occupied)
  write_counts_and_turns()
  note_shares()
  if #admitted > 0 then place_ready(admitted, 'LPUSH') end
  local soonest = tonumber(redis.call('ZRANGE', all_limits, 0, 0, 'WITHSCORES')[2] or BLOCKED_MS)
  return #admitted, soonest < BLOCKED_MS and math.max(0, soonest - now_ms) or -1
end
