-- limit: refuses what would make the waiting line longer than it may be.
-- Needs: keys.

local function refusal_when_full(more)
  local limit = redis.call('HGET', meta, 'limit')
  if not limit then return nil end
  local holes = tonumber(redis.call('HGET', meta, 'holes') or 0)
  local waiting = redis.call('LLEN', ready) - holes + redis.call('ZCARD', urgent) + redis.call('ZCARD', delayed)
  if waiting + more <= tonumber(limit) then return nil end
  return redis.error_reply('MQW_FULL ' .. waiting .. ' waiting, ' .. more .. ' more would pass the limit of ' .. limit)
end
