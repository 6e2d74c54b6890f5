-- claims: the newest claim of each consumer, a field 'claim:consumer' of meta. Claims of a consumer are numbered, and
-- the field goes with the consumer's record: who is not registered gets nothing.
-- Needs: gq_queue, order.

-- Whether this very claim was answered before: then it has what it took, and nothing more. Or the error of one that is
-- late: a newer claim of the consumer was answered, and nobody waits for this one.
local function was_answered(consumer, claim)
  local newest = redis.call('HGET', meta, 'claim:' .. consumer)
  if not newest then return false end
  local earlier, is_late = judge(claim, newest, '')
  return earlier ~= nil, is_late
end

local function note_answered(consumer, claim)
  redis.call('HSET', meta, 'claim:' .. consumer, claim)
end
