-- take_parked: removes messages that somebody else could not run, of tasks that the caller knows.
-- Needs: keys, clock, record, place, limited, parked, guard, report, announce, take.

local LOOK_AT_MOST = 500 -- in one call; what is behind comes with the next one

-- All of a task but what its own version refused: '-' is a version that refused nothing.
local function ranges_of(task, mark)
  local first, last = '[' .. task .. ' ', '(' .. task .. '!'
  if mark == UNKNOWN then return { first, last } end
  return { first, '(' .. task .. ' ' .. mark .. ' ', '[' .. task .. ' ' .. mark .. '!', last }
end

-- known: task and version, task and version ...
local function take_parked(count, known, kept, window_ms)
  local taken, expired, unpermitted, looks, bytes = {}, {}, {}, LOOK_AT_MOST, 0
  if redis.call('ZCARD', parked) == 0 then return taken end

  local function take_entry(entry)
    local id = parked_message(entry)
    redis.call('ZREM', parked, entry)
    local record = id and redis.call('HGET', parcels, id)
    if not record then return end
    redis.call('ZREM', delayed, id)
    redis.call('HDEL', parcels, id)
    bytes = bytes + #record
    taken[#taken + 1] = deliverable(record, expired, unpermitted, window_ms)
  end

  local function take_range(first, last)
    repeat
      local most = math.min(count - #taken, looks)
      if most <= 0 or bytes > MOST_BYTES then return end
      local entries = redis.call('ZRANGE', parked, first, last, 'BYLEX', 'LIMIT', 0, most)
      looks = looks - #entries
      for _, entry in ipairs(entries) do
        if bytes <= MOST_BYTES then take_entry(entry) end
      end
    until #entries < most
  end

  for i = 1, #known, 2 do
    local ranges = ranges_of(known[i], known[i + 1])
    for at = 1, #ranges, 2 do take_range(ranges[at], ranges[at + 1]) end
  end
  return_limited(unpermitted)
  report_expired(expired, kept)
  return taken
end
