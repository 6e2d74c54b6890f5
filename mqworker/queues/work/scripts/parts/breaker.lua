-- breaker: what the end of a call means for the circuit breakers among its limits (parts/closing.lua).
-- Needs: keys, clock, slots, closing.

-- A call with these limits has ended. `told` gets an event for each name that is closed or opened by that.
local function note_end_for_breakers(limits, task, has_failed, told)
  for _, breaker in ipairs(parts_of(limits).breakers) do
    local name, most, within_ms, closed_for_ms = breaker[1], breaker[2], breaker[3], breaker[4]
    local until_ms, is_half = closed_until_ms(name)
    local is_half_open = is_half and until_ms <= now_ms
    local failures = queue_prefix .. 'failures:' .. name -- list with a time to live: instants, the newest first
    if has_failed and not is_half then
      redis.call('LPUSH', failures, digits(now_ms))
      redis.call('LTRIM', failures, 0, most - 1)
      redis.call('PEXPIRE', failures, within_ms)
    end
    local oldest_ms = has_failed and tonumber(redis.call('LINDEX', failures, most - 1) or 0) or 0
    local is_tripped = not is_half and oldest_ms > now_ms - within_ms
    if has_failed and (is_half_open or is_tripped) then
      redis.call('DEL', failures)
      close_name(name, now_ms + closed_for_ms, HALF)
      local why = is_half_open and 'the call that tried failed' or most .. ' calls failed'
      told[#told + 1] = { event = 'closed', task = task, error = 'CircuitBreaker', error_msg = name .. ': ' .. why }
    elseif not has_failed and is_half_open then
      open_name(name)
      told[#told + 1] = { event = 'opened', task = task, error_msg = name .. ': the call that tried succeeded' }
    end
  end
end
