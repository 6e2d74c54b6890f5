-- attributes: what is known about a queue, as one reply.
-- Needs: clock, rsmq_queue.

-- {vt, delay, maxsize, totalrecv, totalsent, created, modified, messages, hidden ones}
local function attributes()
  local reply =
    redis.call('HMGET', messages, 'vt', 'delay', 'maxsize', 'totalrecv', 'totalsent', 'created', 'modified')
  reply[8] = redis.call('ZCARD', line)
  reply[9] = redis.call('ZCOUNT', line, '(' .. digits(now_ms), '+inf')
  return reply
end
