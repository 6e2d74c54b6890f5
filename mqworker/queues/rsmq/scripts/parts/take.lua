-- take: the messages that are visible now, and counting that they were received.
-- Needs: clock, rsmq_queue.

local MOST_DROPPED = 1000 -- in one call: nobody else should wait long for it

-- Up to `count` of {id, message, times received with this one, first received at}, in the order of the line.
-- A member without a message is nobody's any more: it is dropped, or it would stand in front for ever.
local function visible(count)
  local found, dropped = {}, 0
  while #found < count and dropped < MOST_DROPPED do
    local ids = redis.call('ZRANGEBYSCORE', line, '-inf', digits(now_ms), 'LIMIT', #found, count - #found)
    if #ids == 0 then break end
    local wanted = {}
    for i, id in ipairs(ids) do
      wanted[3 * i - 2], wanted[3 * i - 1], wanted[3 * i] = id, id .. ':rc', id .. ':fr'
    end
    local fields, dropped_before = read_many('HMGET', messages, wanted), dropped
    for i, id in ipairs(ids) do
      local message, received, first_at = fields[3 * i - 2], decimal(fields[3 * i - 1]) or 0, fields[3 * i]
      if message then
        local is_known = received > 0 and decimal(first_at)
        found[#found + 1] = { id, message, received + 1, is_known and first_at or digits(now_ms) }
      else
        redis.call('ZREM', line, id)
        dropped = dropped + 1
      end
    end
    if dropped == dropped_before then break end
  end
  return found
end

-- Hides what was found and counts it: `:rc` each time, `:fr` the first time.
local function mark_received(found, total_received, visible_at_ms)
  local scores, counts = {}, { 'totalrecv', digits(total_received + #found) }
  for i, entry in ipairs(found) do
    local id, received = entry[1], entry[3]
    scores[2 * i - 1], scores[2 * i] = visible_at_ms, id
    counts[#counts + 1] = id .. ':rc'
    counts[#counts + 1] = digits(received)
    if received == 1 then
      counts[#counts + 1] = id .. ':fr'
      counts[#counts + 1] = digits(now_ms)
    end
  end
  call_many('ZADD', line, scores)
  call_many('HSET', messages, counts)
end

-- What is remembered of a reply: all but the messages, which are still there.
local function as_received(found)
  local received = {}
  for i, entry in ipairs(found) do received[i] = { entry[1], entry[3], entry[4] } end
  return cmsgpack.pack(received)
end

-- The same reply again, as far as nobody else has received or deleted a message since.
local function received_before(packed)
  local received, found = cmsgpack.unpack(packed), {}
  for i, entry in ipairs(received) do
    local id, times, first_at = entry[1], entry[2], entry[3]
    local fields = redis.call('HMGET', messages, id, id .. ':rc')
    if not fields[1] or decimal(fields[2]) ~= times then break end
    found[i] = { id, fields[1], times, first_at }
  end
  return found
end
