#!lua flags=allow-oom
-- claim: take messages under leases with fences: first those of ours that are due, then from Celery's lists.
--
-- KEYS     as in parts/queue.lua: ours, then Celery's lists, the most urgent first
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/side_calls.lua
-- ARGV[3]  how many at the most; ARGV[4] lease ms; ARGV[5] how many lists
-- ARGV[6]  how many messages are looked at in a list, past those that are left for Celery
-- ARGV[7..] names of tasks that nobody here knows: their messages stay where they are
-- Returns  {server's time ms, {{fence, deliveries, failures, crashes, taken at ms, message}, ...}}
-- Numbered because: a copy that comes late would take messages that nobody hears of.
-- Atomic because: a message that is in no list and under no lease would be lost.

-- @include slices
-- @include clock
-- @include queue
-- @include order
-- @include side_calls

local lane, number, count, lease_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local list_count, depth, first_name = tonumber(ARGV[5]), tonumber(ARGV[6]), 7
local CHUNK = 100

local function told(fence, found)
  return { fence, found.deliveries, found.failures, found.crashes, digits(found.taken_at_ms), found.message }
end

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then
  local first, last, at_ms = string.match(earlier, '^(%d+) (%d+) (%d+)$')
  local found = {}
  for fence = tonumber(first), tonumber(last) do
    local entry = held_entry(digits(fence))
    local before = opened(entry)
    if before then found[#found + 1] = told(fence, before) end
  end
  return { at_ms, found }
end
check_types(list_count)

local is_left, has_left = {}, false
for at = first_name, #ARGV do is_left[ARGV[at]], has_left = true, true end

-- The header has the first "task" of a message: what stands before it is base64.
local function is_for_celery(message)
  local task = string.match(message, '"task"%s*:%s*"([^"\\]+)"')
  return task ~= nil and is_left[task] ~= nil
end

local taken = {} -- {entry or nil, found}

local function take_due()
  for _, entry in ipairs(redis.call('ZRANGEBYSCORE', waiting, '-inf', digits(now_ms), 'LIMIT', 0, count)) do
    local found = opened(entry)
    redis.call('ZREM', waiting, entry)
    if found then taken[#taken + 1] = { entry, found } end
  end
end

local function note_taken(position, message)
  local found =
    { list = position, deliveries = 0, failures = 0, crashes = 0, taken_at_ms = now_ms, message = message }
  taken[#taken + 1] = { nil, found }
end

-- Looks at messages from the right, takes those for us, and puts the others back as they stood.
local function take_past_others(position, list)
  local passed, looked_at = {}, 0
  while looked_at < depth and #taken < count do
    local chunk = redis.call('LRANGE', list, -looked_at - CHUNK, -looked_at - 1)
    for at = #chunk, 1, -1 do
      if #taken == count then break end
      looked_at = looked_at + 1
      if is_for_celery(chunk[at]) then passed[#passed + 1] = chunk[at] else note_taken(position, chunk[at]) end
    end
    if #chunk < CHUNK then break end
  end
  if #passed == looked_at then return end
  redis.call('LTRIM', list, 0, -looked_at - 1)
  local others = {}
  for at = #passed, 1, -1 do others[#others + 1] = passed[at] end
  call_many('RPUSH', list, others)
end

local function take_from(position)
  local list = KEYS[FIRST_LIST + position - 1]
  if has_left then return take_past_others(position, list) end
  local popped = redis.call('RPOP', list, count - #taken)
  for _, message in ipairs(popped or {}) do note_taken(position, message) end
end

take_due()
for position = 1, list_count do
  if #taken < count then take_from(position) end
end
if #taken == 0 then
  remember_reply(lane, number, '1 0 ' .. digits(now_ms))
  return { digits(now_ms), {} }
end

local last = redis.call('HINCRBY', held, 'fence', #taken)
local first, ends_at_ms = last - #taken + 1, digits(now_ms + lease_ms)
local found, holding, ends, stored = {}, {}, {}, {}
for i, each in ipairs(taken) do
  local fence = first + i - 1
  local entry, message = each[1], each[2]
  if not entry then
    entry = string.format('%016.0f', fence) -- one counter gives both; of equal length: equal times keep this order
    stored[#stored + 1] = entry
    stored[#stored + 1] = head_of(message.list, 0, 0, 0, now_ms) .. message.message
  end
  holding[2 * i - 1], holding[2 * i] = digits(fence), entry
  ends[2 * i - 1], ends[2 * i] = ends_at_ms, digits(fence)
  found[i] = told(fence, message)
end
call_many('HSET', messages, stored)
call_many('HSET', held, holding)
call_many('ZADD', leases, ends)
remember_reply(lane, number, digits(first) .. ' ' .. digits(last) .. ' ' .. digits(now_ms))
return { digits(now_ms), found }
