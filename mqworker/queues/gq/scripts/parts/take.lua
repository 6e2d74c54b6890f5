-- take: which messages a consumer may take, and taking them.
-- Needs: clock, gq_queue, gq_end.

local WINDOW, MOST_PASSED_OVER = 256, 4096
local SHORTEST_LEASE_MS = 1000

-- Whether a claim may have this message: queued, or at least once: consumed and its time is over.
local function is_claimable(record, guarantee)
  if record.status == 'queued' then return guarantee == 'at_least_once' or not has_passed(record) end
  if record.status ~= 'consumed' or guarantee ~= 'at_least_once' then return false end
  local ends_at = tonumber(redis.call('ZSCORE', leases, record.id) or nil)
  return ends_at ~= nil and ends_at <= now_ms
end

-- Queued messages from `start` on that `fits` accepts: ids, and where to go on if it stopped early.
local function scan(start, count, fits)
  local found, passed_over = {}, 0
  while passed_over < MOST_PASSED_OVER do
    local ids = redis.call('ZRANGE', queued, start, '+inf', 'BYSCORE', 'LIMIT', 0, WINDOW)
    for _, id in ipairs(ids) do
      if fits(tonumber(id), id) then found[#found + 1] = tonumber(id) end
      if #found == count then return found, nil end
    end
    if #ids < WINDOW then return found, nil end
    passed_over = passed_over + WINDOW
    start = '(' .. ids[#ids]
  end
  return found, start
end

-- Ids to take, oldest first, and where to go on if none was found within what one call may pass over.
-- `scope` is 'own': the partition and lost ones; or 'any': whatever waited for `waited_ms`.
local function candidates(start, count, guarantee, index, total, scope, waited_ms)
  local function fits(number, id)
    if scope == 'own' and number % total ~= index then return false end
    if scope == 'own' and guarantee == 'at_least_once' then return true end
    local record = read_record(id)
    return record and is_claimable(record, guarantee) and (scope == 'own' or now_ms - record.queued_at >= waited_ms)
  end
  local found, stopped_at = scan(start, count, fits)
  if guarantee == 'at_least_once' then
    for _, id in ipairs(redis.call('ZRANGE', leases, '-inf', digits(now_ms), 'BYSCORE', 'LIMIT', 0, 1000)) do
      found[#found + 1] = tonumber(id)
    end
    table.sort(found)
  end
  local ids = {}
  for i = 1, math.min(count, #found) do ids[i] = digits(found[i]) end
  return ids, #ids == 0 and stopped_at or nil
end

local function as_reply(record)
  return {
    record.id, redis.call('HGET', payloads, record.id) or '', digits(record.attempts),
    digits(record.created_at), record.deadline and digits(record.deadline) or '',
  }
end

local function lease_end(record)
  if record.deadline > now_ms then return record.deadline end
  return now_ms + math.max(SHORTEST_LEASE_MS, record.deadline - record.created_at)
end

-- Give those that still may be claimed to the consumer; a lost one without tries left fails instead.
local function take(ids, guarantee, max_retries, consumer, claim)
  local taken = {}
  for _, id in ipairs(ids) do
    local record = read_record(id)
    if record and is_claimable(record, guarantee) then
      if record.status == 'consumed' and not has_tries_left(record, max_retries) then
        finish(record, 'failed', 'retries')
      else
        detach(record)
        record.status, record.consumer, record.claim = 'consumed', consumer, claim
        record.attempts = record.attempts + 1
        redis.call('ZADD', owned, 0, owner_entry(record))
        if record.deadline then redis.call('ZADD', leases, digits(lease_end(record)), id) end
        write_record(record)
        taken[#taken + 1] = as_reply(record)
      end
    end
  end
  return taken
end

-- What this very claim took when it ran before and its reply was lost.
local function taken_before(consumer, claim)
  local prefix, taken = consumer .. '.' .. claim, {}
  for _, entry in ipairs(redis.call('ZRANGE', owned, '[' .. prefix .. ' ', '(' .. prefix .. '!', 'BYLEX')) do
    local record = read_record(string.sub(entry, #prefix + 2))
    if record then taken[#taken + 1] = as_reply(record) end
  end
  table.sort(taken, function(one, other) return tonumber(one[1]) < tonumber(other[1]) end)
  return taken
end
