#!lua flags=allow-oom
-- look_schedules: what is due now, for one broker; the others take what comes after it.
--
-- KEYS     as in parts/keys.lua
-- ARGV[1]  most of them, ARGV[2] claimed for so many ms: then they are due again, if their broker was killed
-- Returns  {now ms, ms until another one is due or -1, {queue and name, deleted at, ...}, {name, stored text, mark, ...}}
-- Atomic because: brokers would all work on the same names. Two that do anyway fire nothing twice.
-- Repeatable: what was claimed by the first copy comes due again.

-- @include slices
-- @include clock
-- @include keys

local most, claim_ms = tonumber(ARGV[1]), tonumber(ARGV[2])
local CLOCK_WENT_BACK_MS = 10000 -- as in model/schedule.py
local MENDED_AT_ONCE = 500

look_at_types()
local count = redis.call('HLEN', specs)

-- What is due by a clock that was set back since may be due much sooner by the new one: all are looked at again.
local looked_ms = tonumber(redis.call('HGET', schedules_meta, 'looked_ms') or 0) or 0
if looked_ms > now_ms + CLOCK_WENT_BACK_MS then
  if redis.call('ZCARD', due) > 0 then redis.call('ZUNIONSTORE', due, 1, due, 'WEIGHTS', 0) end
  looked_ms = 0
end
if count > 0 and now_ms > looked_ms then redis.call('HSET', schedules_meta, 'looked_ms', digits(now_ms)) end

-- Another program took something out of the index, or put a schedule beside it: a page of all is compared in each look.
if count ~= redis.call('ZCARD', due) or count ~= redis.call('ZCARD', names) then
  local cursor = redis.call('HGET', schedules_meta, 'cursor') or '0'
  if #cursor > 19 or not string.match(cursor, '^%d+$') then cursor = '0' end
  local page = redis.call('HSCAN', specs, cursor, 'COUNT', MENDED_AT_ONCE)
  for at = 1, #page[2], 2 do
    redis.call('ZADD', due, 'NX', 0, page[2][at])
    redis.call('ZADD', names, 'NX', 0, page[2][at])
  end
  redis.call('HSET', schedules_meta, 'cursor', page[1])
end

local found, claimed, entries = redis.call('ZRANGE', due, '-inf', digits(now_ms), 'BYSCORE', 'LIMIT', 0, most), {}, {}
local texts, noted = read_many('HMGET', specs, found), read_many('HMGET', marks, found)
for i, name in ipairs(found) do
  if texts[i] then
    claimed[#claimed + 1] = digits(now_ms + claim_ms)
    claimed[#claimed + 1] = name
    entries[#entries + 1] = name
    entries[#entries + 1] = texts[i]
    entries[#entries + 1] = noted[i] or ''
  else
    redis.call('ZREM', due, name)
    redis.call('ZREM', names, name)
  end
end
local soonest = redis.call('ZRANGE', due, '(' .. digits(now_ms), digits(NEVER_MS - 1), 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')[2]
call_many('ZADD', due, claimed)

local to_forget = redis.call('ZRANGE', forget, '-inf', digits(now_ms), 'BYSCORE', 'LIMIT', 0, most, 'WITHSCORES')
for at = 2, #to_forget, 2 do to_forget[at] = digits(tonumber(to_forget[at])) end
return { now_ms, soonest and tonumber(soonest) - now_ms or -1, to_forget, entries }
