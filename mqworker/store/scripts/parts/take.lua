-- take: removes records from the waiting lines, urgent first, passing over what is no longer to be delivered.
-- Needs: keys, clock, record, guard, report.

local function take_raw(count)
  local records = {}
  if redis.call('ZCARD', urgent) > 0 then
    local popped = redis.call('ZPOPMIN', urgent, count)
    for i = 1, #popped, 2 do records[#records + 1] = popped[i] end
  end
  if #records < count then
    local popped = redis.call('LPOP', ready, count - #records)
    if #records == 0 then return popped or records end
    for _, record in ipairs(popped or {}) do records[#records + 1] = record end
  end
  return records
end

-- Whether the record may be delivered; settles the account of those that may not.
local function is_deliverable(record, expired)
  if record == HOLE then
    redis.call('HINCRBY', meta, 'holes', -1)
    return false
  end
  if not is_record(record) then return true end -- the consumer buries what it cannot read
  local id, task = id_and_task(record)
  if has_deadline(record) then
    local unreported = redis.call('ZREM', deadlines, id) == 1
    if deadline_of(record) <= now_ms then
      if guard_mode(record) ~= '-' then release_guard(record, id, 0) end
      if unreported then
        expired[#expired + 1] = { event = 'expired', task_id = id, task = task }
      else
        redis.call('HINCRBY', meta, 'holes', -1) -- expire.lua reported it while it lay in the line
      end
      return false
    end
  end
  if guard_mode(record) == 'w' then release_guard(record, id, 0) end
  return true
end

local function take(count, kept)
  local has_exceptions = tonumber(redis.call('HGET', meta, 'holes') or 0) > 0
    or redis.call('HLEN', guards) > 0
    or redis.call('ZCARD', deadlines) > 0
  if not has_exceptions then return take_raw(count) end
  local taken, expired = {}, {}
  repeat
    local batch = take_raw(count - #taken)
    for _, record in ipairs(batch) do
      if is_deliverable(record, expired) then taken[#taken + 1] = record end
    end
  until #batch == 0 or #taken == count
  if #expired > 0 then
    redis.call('HINCRBY', meta, 'expired', #expired)
    for _, event in ipairs(expired) do redis.call('HSET', results, event.task_id, 'E') end
    append_events(kept, expired)
  end
  return taken
end
