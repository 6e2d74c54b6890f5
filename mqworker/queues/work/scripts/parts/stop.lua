-- stop: a message that somebody asked to stop while it was held does not come back to its line, however it was lost.
-- Needs: keys, record, guard.

-- Whether it was asked to stop; if so it ends here, as cancelled.
local function is_stopped(id, record, window_ms)
  local wish = redis.call('HGET', results, id) or redis.call('HGET', old_results, id)
  if wish ~= 'X' then return false end
  redis.call('HSET', results, id, 'C')
  if guard_mode(record) ~= '-' then release_guard(record, id, window_ms) end
  return true
end
