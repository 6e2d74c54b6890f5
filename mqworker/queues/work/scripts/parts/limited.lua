-- limited: where limited messages wait for their permit. They are stored like delayed messages without an instant, so
-- that cancel, expire, find and purge treat them like any delayed one; a list for each combination of limits keeps their
-- order. Its key is in the queue's slot, made from the name of a declared one (decision 9).
-- A permit is for one start, and for a short time (decision 16): what comes back, however it was lost, waits again.
-- Needs: slices, keys, clock, record, place, slots, closing.

local PERMIT_NEEDED_MS = 9e15 -- due when a permit is there, not at an instant

local function limited_key(limits)
  return string.sub(meta, 1, -5) .. 'limited:' .. limits
end

-- side is 'RPUSH' for the back of the list of its limits, 'LPUSH' for the front.
local function place_limited(limits, id, record, side)
  place_delayed(id, with_permit(record, ''), PERMIT_NEEDED_MS)
  redis.call(side, limited_key(limits), id)
  local is_new = redis.call('ZADD', all_limits, 'NX', digits(now_ms), limits) == 1
  -- Nobody asks often while nothing waits, or all that waits does so for a slot.
  if is_new and redis.call('ZCOUNT', all_limits, '-inf', '(' .. digits(BLOCKED_MS)) == 1 then wake('limited') end
end

-- Whether it may start only with a permit. Limits without a bucket or a slot only make tenants take turns.
local function needs_permit(record)
  return is_limited(record) and is_record(record) and parts_of(limits_of(record)).needs_permit
end

-- Records come back: puts those that need a permit at the front of the lists of their limits, in the order given;
-- returns the others.
local function return_limited(records)
  local others, limited, ids = {}, {}, {}
  for _, record in ipairs(records) do
    local into = needs_permit(record) and limited or others
    into[#into + 1] = record
    if into == limited then ids[#limited] = id_of(record) end
  end
  for i = #limited, 1, -1 do
    place_limited(limits_of(limited[i]), ids[i], limited[i], 'LPUSH')
  end
  free_slots_and_call(ids)
  return others
end

local limits_of_taken = {} -- record as it is delivered -> its limits, of those that occupy slots

-- The record of the ready line as it is delivered: its permit says how many ms it is valid still, for from here on the
-- clock of the consumer measures it. Nil when it needs a permit and has none that is: it ended, or the server's clock
-- went back since, or one of its limits was closed.
local function with_fresh_permit(record)
  local limits, permit, before, last, costs = limits_field(record)
  if not parts_of(limits).needs_permit then return record end
  if limits_closed_until_ms(limits) > 0 then return nil end
  local at_ms, valid_ms = string.match(permit or '', '^(%d+)%+(%d+)$')
  local age_ms = now_ms - (tonumber(at_ms) or math.huge)
  local left_ms = age_ms < 0 and 0 or tonumber(valid_ms) - age_ms
  if left_ms <= 0 then return nil end
  local permitted = string.sub(record, 1, before) .. digits(left_ms) .. ';' .. limits .. costs .. string.sub(record, last + 1)
  if #parts_of(limits).counted > 0 then limits_of_taken[permitted] = limits end
  return permitted
end

-- Records leave the ready line for whoever takes them: notes where those are that occupy slots. `where(i)` says it of the
-- i-th. `limits_of_taken` was filled as they were looked at.
local function note_slots_of(records, where)
  if next(limits_of_taken) == nil then return end
  local taken = {}
  for i, record in ipairs(records) do
    local limits = limits_of_taken[record]
    if limits then
      taken[#taken + 1] = id_of(record)
      taken[#taken + 1] = where(i) .. ' ' .. limits
    end
  end
  occupy(taken)
end
