#!lua flags=allow-oom
-- repair: mend what only another program or a defect can have broken: an entry without its other half.
--
-- KEYS     as in parts/keys.lua; KEYS[21] held, of leases that expire: fence -> record
-- ARGV[1]  cursor of the parcels, ARGV[2] cursor of the held: '0' to begin, '' when through
-- Returns  {repaired, cursor of the parcels, cursor of the held}
-- Repeatable: what is whole is left alone.

-- @include slices
-- @include keys
-- @include clock
-- @include record
-- @include place
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

if repaired > 0 then
  redis.call('HINCRBY', meta, 'repaired', repaired)
  if was_idle then wake('ready') end
end
return { repaired, parcels_cursor, held_cursor }
