#!lua flags=no-writes,allow-oom
-- find: say in which state a message is. The ready line is searched in windows, as in cancel.lua.
--
-- KEYS     as in parts/keys.lua
-- ARGV[1]  id; ARGV[2] offset, ARGV[3] size: the window
-- Returns  {state, detail}: delayed (due at ms), ready (how many stand before it), settled (result), dead (letter);
--          {'further'} when it may be in a window behind this one, {'absent'} when there is none
-- What a consumer holds is looked up in its own hash, by the caller.

-- @include keys
-- @include clock
-- @include record

local id, offset, size = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local due_at_ms = redis.call('ZSCORE', delayed, id)
if due_at_ms then return { 'delayed', due_at_ms } end
local result = redis.call('HGET', results, id) or redis.call('HGET', old_results, id)
if result and result ~= 'X' then return { 'settled', result } end
local stored = redis.call('HGET', letters, id)
if stored then return { 'dead', stored } end

-- One whose deadline passed is looked past: a later message may have the same chosen id.
local has_expired = false
local function is_the_one(record)
  if string.sub(record, 26, 26 + #id) ~= id .. ' ' or not is_record(record) then return false end
  has_expired = has_expired or is_over(record, now_ms)
  return not is_over(record, now_ms)
end

for i, record in ipairs(redis.call('ZRANGE', urgent, offset, offset + size - 1)) do
  if is_the_one(record) then return { 'ready', offset + i - 1 } end
end
local urgent_count = redis.call('ZCARD', urgent)
local last = redis.call('LLEN', ready) - 1 - offset
local first = math.max(0, last - size + 1)
if last >= 0 then
  for i, record in ipairs(redis.call('LRANGE', ready, first, last)) do
    if is_the_one(record) then return { 'ready', urgent_count + first + i - 1 } end
  end
end
if has_expired then return { 'settled', 'E' } end
return { ((first == 0 or last < 0) and urgent_count <= offset + size) and 'absent' or 'further' }
