#!lua flags=no-writes,allow-oom
-- inspect: MQ.INSPECT, look at elements by position and change nothing.
--
-- KEYS     as in parts/keys.lua, then those of parts/rqueue.lua
-- ARGV[1]  'undelivered' or 'pending'; ARGV[2] start, negative counts from the end; ARGV[3] count
-- Returns  {{id, element}, ...}, or pending {{id, element, last delivery ms, elapsed ms, deliveries}, ...}; no more than
--          MOST_BYTES, but one at least
-- Errors   WRONGTYPE, MQW_EMPTYKEY when there is no such queue

-- @include keys
-- @include clock
-- @include record
-- @include rqueue

local MOST_BYTES = 8 * 1024 * 1024 -- as take.lua: who looks at long elements must not stop the server
local PIECE = 64 -- read at once: so much may turn out to be too much

local which, start, count = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

if holds_wrong_type() then return redis.error_reply(WRONG_TYPE) end
if redis.call('EXISTS', meta) == 0 then return redis.error_reply('MQW_EMPTYKEY no such queue') end

-- The half-open range of positions asked for, or nil where the start lies outside.
local function positions(length)
  local first = start < 0 and length + start or start
  if first < 0 or first >= length then return nil end
  return first, math.min(first + count, length)
end

local reply, bytes = {}, 0

local function has_room(record)
  bytes = bytes + #record
  return bytes <= MOST_BYTES or #reply == 0
end

if which == 'pending' then
  local first, stop = positions(redis.call('ZCARD', delivered))
  if not first then return {} end
  for _, id in ipairs(redis.call('ZRANGE', delivered, first, stop - 1)) do
    local at_ms, deliveries, record = unpack_popped(redis.call('HGET', popped, id))
    if not has_room(record) then break end
    reply[#reply + 1] = { id, element_of(record), at_ms, math.max(0, now_ms - at_ms), deliveries }
  end
  return reply
end

-- Adds what lies there, from first to before stop; whether there is room for more.
local function add(command, line, first, stop)
  for from = first, stop - 1, PIECE do
    for _, record in ipairs(redis.call(command, line, from, math.min(from + PIECE, stop) - 1)) do
      if record ~= HOLE then
        if not has_room(record) then return false end
        reply[#reply + 1] = { is_record(record) and (id_and_task(record)) or '', element_of(record) }
      end
    end
  end
  return true
end

local urgent_count = redis.call('ZCARD', urgent)
local first, stop = positions(urgent_count + redis.call('LLEN', ready))
if not first then return {} end
if add('ZRANGE', urgent, first, math.min(stop, urgent_count)) then
  add('LRANGE', ready, math.max(0, first - urgent_count), stop - urgent_count)
end
return reply
