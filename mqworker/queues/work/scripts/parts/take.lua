-- take: removes records from the waiting lines, urgent first, passing over what is no longer to be delivered.
-- Needs: slices, keys, clock, record, place, slots, limited, guard, report, announce.

local MOST_BYTES = 8 * 1024 * 1024 -- a thousand long messages must not fill anybody's memory; one always fits

-- Gives back what is more than that, to the front where it came from; and says whether there was any.
local function within_bytes(records)
  local bytes = 0
  for i = 1, #records do
    bytes = bytes + #records[i]
    if bytes > MOST_BYTES and i > 1 then
      for j = #records, i, -1 do
        redis.call('LPUSH', ready, records[j])
        records[j] = nil
      end
      return records, true
    end
  end
  return records, false
end

local function take_raw(count)
  local records = {}
  if redis.call('ZCARD', urgent) > 0 then
    redis.call('LLEN', ready) -- a foreign type shows itself before the first write
    local popped = redis.call('ZPOPMIN', urgent, count)
    for i = 1, #popped, 2 do records[#records + 1] = popped[i] end
  end
  if #records < count then
    local popped = redis.call('LPOP', ready, count - #records)
    if #records == 0 then return within_bytes(popped or records) end
    for _, record in ipairs(popped or {}) do records[#records + 1] = record end
  end
  return within_bytes(records)
end

-- Newest wins: whether a later message has its key.
local function is_superseded(record, id)
  local guard = redis.call('HGET', guards, guard_of(record))
  return guard and string.match(guard, '^[^ ]+') ~= id
end

-- The record as it is delivered, or nil; settles the account of those that may not be.
local function deliverable(record, expired, unpermitted, window_ms)
  if record == HOLE then
    redis.call('HINCRBY', meta, 'holes', -1)
    return nil
  end
  if not is_record(record) then return record end -- the consumer buries what it cannot read
  local id, task = id_and_task(record)
  if has_deadline(record) then
    -- Compared, for the deadline that is watched may belong to a later message with the same chosen id.
    local is_watched = tonumber(redis.call('ZSCORE', deadlines, id) or -1) == deadline_of(record)
    if is_watched then redis.call('ZREM', deadlines, id) end
    if is_over(record, now_ms) then
      if is_watched then
        if guard_mode(record) ~= '-' then release_guard(record, id, window_ms, 'E') end
        expired[#expired + 1] = { event = 'expired', task_id = id, task = task }
      else -- expire.lua reported it while it lay in the line, and saw to a chosen id and to a member
        if string.find('rwln', guard_mode(record), 1, true) then release_guard(record, id, 0) end
        if guard_mode(record) ~= 'i' and guard_mode(record) ~= 'm' then forget_over(id) end
        redis.call('HINCRBY', meta, 'holes', -1)
      end
      return nil
    end
  end
  if guard_mode(record) == 'n' and is_superseded(record, id) then
    if has_deadline(record) then redis.call('ZREM', deadlines, id) end
    expired[#expired + 1] = { event = 'cancelled', task_id = id, task = task }
    return nil
  end
  local permitted = record
  if is_limited(record) then permitted = with_fresh_permit(record) end
  if not permitted then
    watch_deadline(id, record)
    unpermitted[#unpermitted + 1] = record
    return nil
  end
  if guard_mode(record) == 'w' or guard_mode(record) == 'l' then release_guard(record, id, 0) end
  return permitted
end

local function report_expired(expired, kept)
  if #expired == 0 then return end
  local ids = {}
  for i, event in ipairs(expired) do
    ids[i] = event.task_id
    redis.call('HINCRBY', meta, event.event, 1)
    redis.call('HSET', results, event.task_id, event.event == 'expired' and 'E' or 'C')
  end
  free_slots_and_call(ids)
  append_events(kept, expired)
  announce(ids)
end

local PASS_OVER_AT_MOST = 500 -- nobody else should wait long for a script that steps over what is over

-- Up to count records; and whether it stopped early, so that there may be more behind what was passed over.
local function take(count, kept, window_ms)
  local holes = tonumber(redis.call('HGET', meta, 'holes') or 0)
  local guard_count, deadline_count = redis.call('HLEN', guards), redis.call('ZCARD', deadlines)
  local has_permits = redis.call('HLEN', bucket_times) > 0
  local is_simple = holes + guard_count + deadline_count == 0
  if is_simple and not has_permits then return (take_raw(count)), false end
  if has_permits then
    redis.call('ZCARD', delayed)
    redis.call('HLEN', parcels)
    redis.call('ZCARD', all_limits)
  end
  local taken, expired, unpermitted, seen = {}, {}, {}, 0
  repeat
    local batch, was_cut = take_raw(count - #taken)
    seen = seen + #batch
    for _, record in ipairs(batch) do
      if is_simple and not is_limited(record) then -- most of them, in fewer steps
        taken[#taken + 1] = record
      else
        taken[#taken + 1] = deliverable(record, expired, unpermitted, window_ms)
      end
    end
  until #batch == 0 or was_cut or #taken == count or seen - #taken >= PASS_OVER_AT_MOST
  return_limited(unpermitted)
  report_expired(expired, kept)
  return taken, seen - #taken >= PASS_OVER_AT_MOST
end
