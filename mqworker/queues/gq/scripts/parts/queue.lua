-- queue: the keys of one gq queue, and the record of a message.
--
-- Mirrors GqKeys in queues/gq/keys.py. A record is a line of text, '-' where there is nothing:
-- 'status queued_at created_at deadline attempts consumer claim reason'.
-- Needs: clock.

local calls, meta, queued, payloads, records = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local deadlines, leases, owned, done = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local births, beats = KEYS[10], KEYS[11]

local RECORD = '^(%a+) (%d+) (%d+) (%S+) (%d+) (%S+) (%d+) (%S+)$'

local function read_record(id)
  local text = redis.call('HGET', records, id)
  local status, queued_at, created_at, deadline, attempts, consumer, claim, reason = string.match(text or '', RECORD)
  if not status then return nil end
  return {
    id = id, status = status, queued_at = tonumber(queued_at), created_at = tonumber(created_at),
    deadline = tonumber(deadline), attempts = tonumber(attempts), consumer = consumer, claim = claim, reason = reason,
  }
end

local function write_record(record)
  redis.call('HSET', records, record.id, table.concat({
    record.status, digits(record.queued_at), digits(record.created_at),
    record.deadline and digits(record.deadline) or '-', digits(record.attempts),
    record.consumer, record.claim, record.reason,
  }, ' '))
end

local function owner_entry(record)
  return record.consumer .. '.' .. record.claim .. ' ' .. record.id
end

local function has_passed(record)
  return record.deadline ~= nil and record.deadline <= now_ms
end
