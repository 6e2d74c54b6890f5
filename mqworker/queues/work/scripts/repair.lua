#!lua flags=allow-oom
-- repair: mend what only another program or a defect can have broken: an entry without its other half.
--
-- KEYS     as in parts/keys.lua; KEYS[21] held, of leases that expire: fence -> record
-- ARGV[1]  cursor of the parcels, ARGV[2] cursor of the held: '0' to begin, '' when through
-- Returns  {repaired, cursor of the parcels, cursor of the held}
-- The slots of max_running are compared with what is held, and the counts with the slots, while there are a few thousand.
-- Repeatable: what is whole is left alone.

-- @include slices
-- @include keys
-- @include clock
-- @include record
-- @include place
-- @include slots
-- @include closing
-- @include limited
-- @include parked

local held = KEYS[21]
local parcels_cursor, held_cursor = ARGV[1], ARGV[2]
local repaired, page_size = 0, 500

local holes = redis.call('HGET', meta, 'holes')
local was_idle = is_idle()

-- A delayed id without its record can never run; drop it. (Only the soonest: the others come in their time.)
for _, id in ipairs(redis.call('ZRANGE', delayed, 0, page_size - 1)) do
  if redis.call('HEXISTS', parcels, id) == 0 then
    repaired = repaired + redis.call('ZREM', delayed, id)
  end
end

-- A record that no instant belongs to would wait for ever: it is ready now, or limited.
if parcels_cursor ~= '' then
  local page = redis.call('HSCAN', parcels, parcels_cursor, 'COUNT', page_size)
  for i = 1, #page[2], 2 do
    if not redis.call('ZSCORE', delayed, page[2][i]) and redis.call('HDEL', parcels, page[2][i]) == 1 then
      place_ready(return_limited({ page[2][i + 1] }), 'RPUSH')
      repaired = repaired + 1
    end
  end
  parcels_cursor = page[1] == '0' and '' or page[1]
end

-- A delivery without the end of its lease would be held for ever: its lease ends now.
if held_cursor ~= '' then
  local page = redis.call('HSCAN', held, held_cursor, 'COUNT', page_size)
  for i = 1, #page[2], 2 do
    if not redis.call('ZSCORE', leases, page[2][i]) then
      redis.call('ZADD', leases, digits(now_ms), page[2][i])
      repaired = repaired + 1
    end
  end
  held_cursor = page[1] == '0' and '' or page[1]
end

-- The end of a lease that nobody holds means nothing.
for _, fence in ipairs(redis.call('ZRANGE', leases, 0, page_size - 1)) do
  if redis.call('HEXISTS', held, fence) == 0 then
    repaired = repaired + redis.call('ZREM', leases, fence)
  end
end

-- An entry of the index whose message moved on means nothing. Any of them: over time each has its turn.
for _, entry in ipairs(redis.call('ZRANDMEMBER', parked, page_size)) do
  if not parked_message(entry) then redis.call('ZREM', parked, entry) end
end

-- An empty line has no holes. They are left over where a deadline was noted for a message that never was.
if redis.call('LLEN', ready) + redis.call('ZCARD', urgent) == 0 and redis.call('HDEL', meta, 'holes') == 1 then
  repaired = repaired + (tonumber(holes) ~= 0 and 1 or 0)
end

-- A slot that nobody occupies would be missing for ever. What was let in and not claimed for long lies at the front of the
-- line, where nobody claims; it keeps its slot, or others would overtake it.
local LONG_MS, FRONT = 60000, 1000
local ids_in_front
local function is_in_front(id)
  if not ids_in_front then
    ids_in_front = {}
    for _, line in ipairs({ redis.call('LRANGE', ready, 0, FRONT - 1), redis.call('ZRANGE', urgent, 0, FRONT - 1) }) do
      for _, record in ipairs(line) do ids_in_front[id_of(record)] = true end
    end
  end
  return ids_in_front[id]
end

local function is_occupied(id, where)
  local until_ms = tonumber(string.match(where, '^%+(%d+)$'))
  if until_ms then return now_ms < until_ms + LONG_MS or is_in_front(id) end
  if where == POPPED then return redis.call('HEXISTS', queue_prefix .. POPPED, id) == 1 end
  local fence, consumer = string.match(where, '^(%d+)@(.*)$')
  return fence and redis.call('HEXISTS', queue_prefix .. 'held:' .. consumer, fence) == 1
end

local MOST_SLOTS = 5000
local function repair_slots()
  local entries, left = redis.call('HGETALL', slots), {}
  local held_by_name, counts = {}, redis.call('HGETALL', queue_prefix .. 'running')
  for i = 1, #entries, 2 do
    local where, limits = string.match(entries[i + 1], '^(%S+) (.*)$')
    if where and is_occupied(entries[i], where) then
      local counted = parts_of(limits).counted
      for at = 1, #counted, 2 do held_by_name[counted[at]] = (held_by_name[counted[at]] or 0) + 1 end
    else
      left[#left + 1] = entries[i]
    end
  end
  free_slots_and_call(left)
  for i = 1, #counts, 2 do held_by_name[counts[i]] = held_by_name[counts[i]] or 0 end
  local drifted = 0
  for name, count in pairs(held_by_name) do
    local home = home_of(name)
    local field = home == queue_prefix and name or name .. ' ' .. queue_prefix
    local noted = tonumber(redis.call('HGET', home .. 'running', field) or 0) or 0
    if noted ~= count then
      drifted = drifted + 1
      count_more(name, count - noted)
      wake_blocked(name, math.max(0, noted - count))
    end
  end
  write_counts_and_turns()
  if drifted > 0 then wake('limited') end
  return #left + drifted
end
if redis.call('HLEN', slots) <= MOST_SLOTS then
  local drift = repair_slots()
  if drift > 0 then redis.call('HINCRBY', meta, 'slots_repaired', drift) end
  repaired = repaired + drift
end

if repaired > 0 then
  redis.call('HINCRBY', meta, 'repaired', repaired)
  if was_idle then wake('ready') end
end
return { repaired, parcels_cursor, held_cursor }
