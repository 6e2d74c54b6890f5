#!lua flags=no-writes,allow-oom
-- survey: the state of a queue in one look: depths, counters, consumers, the front of the line, the latest samples.
--
-- KEYS     as in parts/keys.lua; KEYS[21] held by nobody in particular, KEYS[22] delivered, KEYS[23] samples
-- ARGV[1]  how many samples; ARGV[2..] names of counters and switches
-- Returns  {now ms, {value of each name}, {ready, delayed, limited, delivered, dead, held by nobody in particular},
--          header of the front record or '', {consumer, last beat ms, held, ...}, {sample, ...},
--          {task, mark of parts/parked.lua, task, mark, ...}: of each message that is parked for a while
-- What each consumer holds is found by the name of a declared key: in the queue's slot, one per consumer (decision 9).

-- @include slices
-- @include keys
-- @include clock
-- @include record
-- @include place
-- @include parked

local sample_count = tonumber(ARGV[1])
local names = values_from(ARGV, 2)
local held_by_nobody, delivered, samples = KEYS[21], KEYS[22], KEYS[23]

local HEADER_LENGTH = 25
local MOST_HOLES = 100 -- looked past at the front: cancelled messages leave them
local PERMIT_NEEDED_MS = '9e15' -- as in parts/limited.lua

-- The header of whichever has waited longest of the two fronts. Bodies stay here, they may be large.
local function front_header()
  local oldest = ''
  local function consider(record)
    if is_record(record) and (oldest == '' or record < oldest) then oldest = string.sub(record, 1, HEADER_LENGTH) end
  end
  for _, record in ipairs(redis.call('ZRANGE', urgent, 0, 0)) do consider(record) end
  for i = 0, MOST_HOLES do
    local record = redis.call('LINDEX', ready, i)
    if record and record ~= HOLE then consider(record) end
    if not record or record ~= HOLE then break end
  end
  return oldest
end

local function each_consumer()
  local found = {}
  local beats = redis.call('ZRANGE', consumers, 0, -1, 'WITHSCORES')
  for i = 1, #beats, 2 do
    local held = redis.call('HLEN', held_by_nobody .. beats[i])
    for _, part in ipairs({ beats[i], tonumber(beats[i + 1]), held }) do found[#found + 1] = part end
  end
  return found
end

local MOST_PARKED = 1000
local FOR_A_WHILE_MS = 2000 -- nobody who can run it has taken it by then

local function each_parked()
  local found = {}
  for _, entry in ipairs(redis.call('ZRANGE', parked, 0, MOST_PARKED - 1)) do
    local id, task, mark, since_ms = parked_message(entry)
    if id and now_ms - since_ms >= FOR_A_WHILE_MS then
      found[#found + 1] = task
      found[#found + 1] = mark
    end
  end
  return found
end

local holes = tonumber(redis.call('HGET', meta, 'holes') or 0) or 0
local depths = {
  math.max(0, redis.call('LLEN', ready) + redis.call('ZCARD', urgent) - holes),
  redis.call('ZCARD', delayed),
  redis.call('ZCOUNT', delayed, PERMIT_NEEDED_MS, '+inf'),
  redis.call('ZCARD', delivered),
  redis.call('ZCARD', dead),
  redis.call('HLEN', held_by_nobody),
}
local latest = redis.call('LRANGE', samples, 0, sample_count - 1)
return { now_ms, read_many('HMGET', meta, names), depths, front_header(), each_consumer(), latest, each_parked() }
