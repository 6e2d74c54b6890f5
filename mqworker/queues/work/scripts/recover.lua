#!lua flags=allow-oom
-- recover: MQ.RECOVER, deliver again what was delivered long ago and not acknowledged.
--
-- KEYS     as in parts/keys.lua, then those of parts/rqueue.lua
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/calls.lua
-- ARGV[3]  how many at the most; ARGV[4] ms since the last delivery, at least
-- Returns  {{id, element}, ...} from the head of the delivered line, each once, no more than MOST_BYTES but one at
--          least; false when there is no such queue
-- Errors   WRONGTYPE
-- Atomic because: of two recoverers only one may get an element.

-- @include keys
-- @include clock
-- @include order
-- @include calls
-- @include record
-- @include rqueue

local MOST_BYTES = 8 * 1024 * 1024 -- as take.lua: one always fits

local lane, number, count, elapsed_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

if holds_wrong_type() then return redis.error_reply(WRONG_TYPE) end
local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then
  local reply = {}
  for id in string.gmatch(earlier, '[^ ]+') do
    local text = redis.call('HGET', popped, id)
    if text then
      local _, _, record = unpack_popped(text)
      reply[#reply + 1] = { id, element_of(record) }
    end
  end
  return reply
end
if redis.call('EXISTS', meta) == 0 then return false end
redis.call('HLEN', popped)
redis.call('HGET', meta, 'fence')

local reply, ids, bytes = {}, {}, 0
for _, id in ipairs(count > 0 and redis.call('ZRANGE', delivered, 0, count - 1) or {}) do
  local at_ms, deliveries, record = unpack_popped(redis.call('HGET', popped, id))
  if math.max(0, now_ms - at_ms) < elapsed_ms then break end -- ordered by last delivery: all behind it are younger
  bytes = bytes + #record
  if bytes > MOST_BYTES and #ids > 0 then break end
  redis.call('ZADD', delivered, digits(redis.call('HINCRBY', meta, 'fence', 1)), id)
  redis.call('HSET', popped, id, digits(now_ms) .. ' ' .. deliveries + 1 .. ' ' .. record)
  ids[#ids + 1], reply[#reply + 1] = id, { id, element_of(record) }
end
if #ids > 0 then redis.call('HINCRBY', meta, 'reclaimed', #ids) end
remember_reply(lane, number, table.concat(ids, ' '))
return reply
