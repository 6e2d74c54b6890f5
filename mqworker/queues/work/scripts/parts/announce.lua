-- announce: tells those who wait for a message that it ended. The channel is named like the key `waiters`.
-- Needs: keys.

local function announce(ids)
  if #ids == 0 or redis.call('SCARD', waiters) == 0 then return end
  local awaited = {}
  for i, is_awaited in ipairs(redis.call('SMISMEMBER', waiters, unpack(ids))) do
    if is_awaited == 1 then awaited[#awaited + 1] = ids[i] end
  end
  if #awaited == 0 then return end
  redis.call('SREM', waiters, unpack(awaited))
  redis.call('SPUBLISH', waiters, table.concat(awaited, ' '))
end
