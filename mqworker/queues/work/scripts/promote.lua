#!lua flags=allow-oom
-- promote: move delayed messages that are due to the back of their line; limited ones wait for their permit.
--
-- KEYS     as in parts/keys.lua
-- ARGV[1]  how many at the most
-- Returns  {promoted, ms until the next one is due, -1 for none}; call again while as many came as were asked for
-- Lock-free: whoever removes the id from the delayed set first has promoted it.

-- @include slices
-- @include keys
-- @include clock
-- @include record
-- @include place
-- @include slots
-- @include closing
-- @include limited

local limit = ARGV[1]

local was_idle = is_idle()
redis.call('HGET', meta, 'fence')
redis.call('ZCARD', all_limits)
local ids = redis.call('ZRANGE', delayed, '-inf', digits(now_ms), 'BYSCORE', 'LIMIT', 0, limit)
if #ids > 0 then
  local due = {}
  local records = read_many('HMGET', parcels, ids)
  call_many('ZREM', delayed, ids)
  call_many('HDEL', parcels, ids)
  for i, record in ipairs(records) do
    if record and is_record(record) and is_limited(record) then
      place_limited(limits_of(record), ids[i], record, 'RPUSH')
    elseif record then
      due[#due + 1] = record
    end
  end
  place_ready(due, 'RPUSH')
  if was_idle and #due > 0 then wake('ready') end
end
local next_due = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2]
return { #ids, next_due and math.min(math.max(0, tonumber(next_due) - now_ms), 2 ^ 53) or -1 }
