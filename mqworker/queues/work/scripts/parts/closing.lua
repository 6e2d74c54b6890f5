-- closing: a key that is closed starts nothing until an instant (ctx.close, RateLimited), or until a call of it has
-- succeeded (a circuit breaker). Closed is what a limit counts: its name, whatever kinds of limits have it.
-- A breaker stands among the limits as 'name!failures/within ms/closed for ms'. Once so many calls failed within that time,
-- the name is closed; after that it is half open: one call at a time may try, and what becomes of it opens or closes.
-- Needs: keys, clock, slots.

local HALF = 'half' -- behind the instant: not open after it, but half open

-- hash: name -> 'until ms', or 'until ms half'
local function closed_key(name)
  return home_of(name) .. 'closed'
end

local has_closed = {}
local function is_any_closed(name)
  local key = closed_key(name)
  if has_closed[key] == nil then has_closed[key] = redis.call('EXISTS', key) == 1 end
  return has_closed[key]
end

-- Until when a name is closed, 0 where it is not; and whether it is, or will then be, half open.
local function closed_until_ms(name)
  if not is_any_closed(name) then return 0, false end
  local until_ms, half = string.match(redis.call('HGET', closed_key(name), name) or '', '^(%d+) ?(%a*)$')
  return tonumber(until_ms or 0), half == HALF
end

-- Until when some of these limits are closed; 0 where none is.
local function limits_closed_until_ms(limits)
  local latest_ms = 0
  for _, name in ipairs(parts_of(limits).names) do latest_ms = math.max(latest_ms, (closed_until_ms(name))) end
  return latest_ms > now_ms and latest_ms or 0
end

local function close_name(name, until_ms, half)
  has_closed[closed_key(name)] = true
  redis.call('HSET', closed_key(name), name, digits(until_ms) .. (half and ' ' .. half or ''))
end

-- Whoever waited for it has its turn now.
local function open_name(name)
  redis.call('HDEL', closed_key(name), name)
  for _, limits in ipairs(redis.call('ZRANGE', all_limits, '(' .. digits(now_ms), '(' .. digits(BLOCKED_MS), 'BYSCORE')) do
    for _, each in ipairs(parts_of(limits).names) do
      if each == name then redis.call('ZADD', all_limits, digits(now_ms), limits) end
    end
  end
  wake_blocked(name .. '!', 1)
end
