#!lua flags=no-writes,allow-oom
-- inspect: MQ.INSPECT, look at elements by position and change nothing.
--
-- KEYS     as in parts/keys.lua, then those of parts/rqueue.lua
-- ARGV[1]  'undelivered' or 'pending'; ARGV[2] start, negative counts from the end; ARGV[3] count
-- Returns  {{id, element}, ...}, or pending {{id, element, last delivery ms, elapsed ms, deliveries}, ...}
-- Errors   WRONGTYPE, MQW_EMPTYKEY when there is no such queue

-- @include keys
-- @include clock
-- @include record
-- @include rqueue

local which, start, count = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

if holds_wrong_type() then return redis.error_reply(WRONG_TYPE) end
if redis.call('EXISTS', meta) == 0 then return redis.error_reply('MQW_EMPTYKEY no such queue') end

-- The half-open range of positions asked for, or nil where the start lies outside.
local function positions(length)
  local first = start < 0 and length + start or start
  if first < 0 or first >= length then return nil end
  return first, math.min(first + count, length)
end

local reply = {}
if which == 'pending' then
  local first, stop = positions(redis.call('ZCARD', delivered))
  if not first then return {} end
  for i, id in ipairs(redis.call('ZRANGE', delivered, first, stop - 1)) do
    local at_ms, deliveries, record = unpack_popped(redis.call('HGET', popped, id))
    reply[i] = { id, element_of(record), at_ms, math.max(0, now_ms - at_ms), deliveries }
  end
  return reply
end

local urgent_count = redis.call('ZCARD', urgent)
local first, stop = positions(urgent_count + redis.call('LLEN', ready))
if not first then return {} end
local records = first < urgent_count and redis.call('ZRANGE', urgent, first, math.min(stop, urgent_count) - 1) or {}
if stop > urgent_count then
  local from = math.max(0, first - urgent_count)
  for _, record in ipairs(redis.call('LRANGE', ready, from, stop - urgent_count - 1)) do
    records[#records + 1] = record
  end
end
for _, record in ipairs(records) do
  if record ~= HOLE then
    reply[#reply + 1] = { is_record(record) and (id_and_task(record)) or '', element_of(record) }
  end
end
return reply
