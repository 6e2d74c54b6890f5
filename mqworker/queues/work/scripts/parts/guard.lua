-- guard: keeps a second message with the same guard key out. Modes, as in model/guard.py:
--   i  an id chosen by the caller: until settled, and for a window after it (a lost reply may be repeated late)
--   r  until settled    w  until claimed    t  until an instant
--   l  until claimed, and a second call replaces the first as long as that is delayed
--   n  until settled; a second call takes the key over, and whoever had it is cancelled, also while it runs
--   m  a member of a workflow: until settled and whatever follows from it is done (decision 5)
--   p  none, but it has spawned other messages. A capital letter is the same for any other mode (decision 43)
-- A guard is 'id expires_at_ms', 0 for "while that message lives".
-- Needs: keys, clock, record.

-- The id of the message that holds the key now, or nil; `guard` is what stands there under the key.
local function holder_by(guard, key)
  if not guard then return nil end
  local id, expires_at_ms = string.match(guard, '^([^ ]+) (%d+)$')
  expires_at_ms = tonumber(expires_at_ms)
  if expires_at_ms > 0 then return expires_at_ms > now_ms and id or nil end
  if string.sub(key, 1, 5) == 'flow:' then return id end
  -- An expired message may still lie in the ready line: it holds nobody up.
  return redis.pcall('SISMEMBER', over, id) ~= 1 and id or nil -- pcall: a foreign type there must not stop a batch
end

local function guard_holder(key)
  return holder_by(redis.call('HGET', guards, key), key)
end

-- Its record is out of reach, and so is the name of the key that it holds: note that it holds nothing any more, until
-- its turn comes and it is passed over.
local function note_over(id)
  redis.call('SADD', over, id)
end

local function forget_over(id)
  redis.pcall('SREM', over, id)
end

-- What stands under a key that is taken.
local function guard_of_holder(mode, id, ttl_ms)
  return id .. ' ' .. (mode == 't' and digits(now_ms + ttl_ms) or '0')
end

local function take_guard(mode, key, id, ttl_ms)
  redis.call('HSET', guards, key, guard_of_holder(mode, id, ttl_ms))
end

-- A message that lives again holds its key again, if nobody else does.
local function take_guard_again(record, id)
  local mode = guard_mode(record)
  if is_parent(record) then redis.call('HSET', guards, 'tree:' .. id, id .. ' 0') end
  if mode == '-' or mode == 't' or mode == 'p' then return end
  local holder = guard_holder(guard_of(record))
  if not holder or holder == id then take_guard(mode, guard_of(record), id, 0) end
end

-- A member keeps its guard: what follows from its end may be done twice until clear_outbox.lua says it was done.
local function leave_in_outbox(id, outcome)
  if redis.call('HLEN', outbox) == 0 then redis.call('SPUBLISH', delayed, 'outbox') end
  redis.call('HSET', outbox, id, outcome)
end

-- outcome: how the message ended, for a member's workflow: 'S<result>', 'D<letter>', 'E', by default 'C'.
local function release_guard(record, id, window_ms, outcome)
  local mode, key = guard_mode(record), guard_of(record)
  if mode == 'm' and is_record(record) then return leave_in_outbox(id, outcome or 'C') end
  if is_parent(record) and is_record(record) then
    leave_in_outbox(id .. '~parent', outcome or 'C')
    redis.call('HDEL', guards, 'tree:' .. id)
    if mode == 'p' then return end
  end
  local guard = is_record(record) and redis.call('HGET', guards, key) -- foreign bytes hold no key
  if mode == 't' or not guard or string.match(guard, '^[^ ]+') ~= id then return end
  if mode == 'i' then
    redis.call('HSET', guards, key, id .. ' ' .. digits(now_ms + window_ms))
  else
    redis.call('HDEL', guards, key)
  end
end
