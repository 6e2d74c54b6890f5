-- end: how messages leave the hands of a consumer: ended and kept for a while, or queued at their old place.
-- Needs: clock, gq_queue.

-- Out of whatever holds it now.
local function detach(record)
  if record.status == 'queued' then
    redis.call('ZREM', queued, record.id)
    redis.call('ZREM', deadlines, record.id)
  elseif record.status == 'consumed' then
    redis.call('ZREM', owned, owner_entry(record))
    redis.call('ZREM', leases, record.id)
  else
    redis.call('ZREM', done, record.id)
    redis.call('HINCRBY', meta, record.status, -1)
  end
end

local function finish(record, status, reason)
  detach(record)
  record.status, record.reason = status, reason
  redis.call('ZADD', done, digits(now_ms), record.id)
  redis.call('HINCRBY', meta, status, 1)
  write_record(record)
end

local function queue_again(record)
  detach(record)
  record.status, record.queued_at = 'queued', now_ms
  redis.call('ZADD', queued, record.id, record.id)
  if record.deadline then redis.call('ZADD', deadlines, digits(record.deadline), record.id) end
  write_record(record)
end

local function has_tries_left(record, max_retries)
  return not max_retries or record.attempts <= max_retries
end

-- At most once: whatever passed its deadline, queued or consumed, failed. A few hundred per call: the rest next time.
local function fail_expired()
  for _, line in ipairs({ deadlines, leases }) do
    for _, id in ipairs(redis.call('ZRANGE', line, '-inf', digits(now_ms), 'BYSCORE', 'LIMIT', 0, 500)) do
      local record = read_record(id)
      if record then finish(record, 'failed', 'deadline') else redis.call('ZREM', line, id) end
    end
  end
end

local function drop_done(ids)
  for _, id in ipairs(ids) do
    local record = read_record(id)
    if record then detach(record) else redis.call('ZREM', done, id) end
    redis.call('HDEL', records, id)
    redis.call('HDEL', payloads, id)
  end
end

-- Ended messages beyond what is kept, a thousand per call at the most.
local function purge_done(retain_ms, retain_count)
  drop_done(redis.call('ZRANGE', done, '-inf', '(' .. digits(now_ms - retain_ms), 'BYSCORE', 'LIMIT', 0, 500))
  local excess = redis.call('ZCARD', done) - retain_count
  if excess > 0 then drop_done(redis.call('ZRANGE', done, 0, math.min(excess, 500) - 1)) end
end
