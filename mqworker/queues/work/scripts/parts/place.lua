-- place: puts records where they wait, and wakes a dispatcher when there was nothing to claim before.
-- Needs: keys, clock, record.

-- Channels are named like keys: same slot, same ACL pattern. The dispatcher listens to `meta`, the broker to
-- `delayed`: each is woken for its own business only.
local function wake(what)
  redis.call('SPUBLISH', what == 'delayed' and delayed or meta, what)
end

local function is_idle()
  local plain_count, urgent_count = redis.call('LLEN', ready), redis.call('ZCARD', urgent) -- both, for their types
  return plain_count + urgent_count == 0
end

-- An offer stands only while nothing waits (claim.lua). One that stands beside messages: somebody put them there
-- who wakes nobody, and whoever is idle would not hear of them, or of what is put behind them, before the next poll.
local function is_overlooked()
  return (redis.call('HGET', meta, 'offer') or '') ~= ''
end

-- Priority first (9 before 1), then order of arrival. Both fit a double exactly: 9 * 1e14 + sequence < 2^53.
local function urgent_score(priority, sequence)
  return digits((9 - priority) * 1e14 + sequence)
end

-- side is 'RPUSH' for the back of the line, 'LPUSH' for the front; records come in the order of delivery.
local function place_ready(records, side)
  local plain = {}
  for _, record in ipairs(records) do
    local priority = tonumber(string.sub(record, 14, 14)) or 0
    if priority > 0 then
      local sequence = side == 'LPUSH' and 0 or redis.call('HINCRBY', meta, 'sequence', 1)
      redis.call('ZADD', urgent, urgent_score(priority, sequence), record)
    elseif side == 'LPUSH' then
      table.insert(plain, 1, record)
    else
      plain[#plain + 1] = record
    end
  end
  if #plain > 0 then call_many(side, ready, plain) end
end

-- Members of delayed are ids; a priority needs no place there, it stands in the record.
local function place_delayed(id, record, due_ms)
  redis.call('ZADD', delayed, digits(due_ms), id)
  redis.call('HSET', parcels, id, record)
end

local function watch_deadline(id, record)
  if has_deadline(record) then redis.call('ZADD', deadlines, digits(deadline_of(record)), id) end
end
