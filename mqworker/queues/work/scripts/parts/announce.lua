-- announce: tells those who wait for a message that it ended. The channel is named like the key `waiters`.
-- Needs: keys.

local function announce(ids)
  if #ids == 0 or redis.call('SCARD', waiters) == 0 then return end
  local awaited = {}
  for i, is_awaited in ipairs(read_many('SMISMEMBER', waiters, ids)) do
    if is_awaited == 1 then awaited[#awaited + 1] = ids[i] end
  end
  if #awaited == 0 then return end
  call_many('SREM', waiters, awaited)
  redis.call('SPUBLISH', waiters, table.concat(awaited, ' '))
end
