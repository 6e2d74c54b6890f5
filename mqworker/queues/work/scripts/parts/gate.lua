-- gate: where limited messages wait for their permit. They are delayed messages without an instant, so that cancel,
-- expire, find and purge treat them like any delayed one; the gate only keeps their order.
-- There is a list for each gate. Its key is in the queue's slot, made from the name of a declared one (decision 9).
-- A permit is for one start, and for a short time (decision 16): what comes back, however it was lost, waits again.
-- Needs: keys, clock, record, place.

local PERMIT_NEEDED_MS = 9e15 -- due when a permit is there, and not by itself

local BUCKET = '=%d+/%d+/%d+'

local function gate_key(gate)
  return string.sub(meta, 1, -5) .. 'gate:' .. gate
end

-- side is 'RPUSH' for the back of its gate, 'LPUSH' for the front.
local function place_at_gate(gate, id, record, side)
  place_delayed(id, with_permit(record, ''), PERMIT_NEEDED_MS)
  redis.call(side, gate_key(gate), id)
  local is_new = redis.call('ZADD', gates, 'NX', digits(now_ms), gate) == 1
  if is_new and redis.call('ZCARD', gates) == 1 then wake('limited') end -- nobody asks often while nothing waits
end

local function place_limited(gate, id, record)
  place_at_gate(gate, id, record, 'RPUSH')
end

-- Whether it may start only with a permit. A gate without a bucket only makes tenants take turns.
local function is_limited(record)
  return has_gate(record) and is_record(record) and string.find(gate_of(record), BUCKET) ~= nil
end

-- Puts the limited ones among records that come back to the front of their gates, in the order given; returns the
-- others.
local function return_to_gates(records)
  local others, limited = {}, {}
  for _, record in ipairs(records) do
    local into = is_limited(record) and limited or others
    into[#into + 1] = record
  end
  for i = #limited, 1, -1 do
    place_at_gate(gate_of(limited[i]), id_of(limited[i]), limited[i], 'LPUSH')
  end
  return others
end

-- The record of the ready line as it is delivered: its permit says how many ms it is valid still, for from here on the
-- clock of the consumer measures it. Nil when it needs a permit and has none that is: it ended, or the server's clock
-- went back since.
local function with_fresh_permit(record)
  local gate, permit, before, last = gate_field(record)
  if not string.find(gate, BUCKET) then return record end
  local at_ms, valid_ms = string.match(permit or '', '^(%d+)%+(%d+)$')
  local age_ms = now_ms - (tonumber(at_ms) or math.huge)
  local left_ms = age_ms < 0 and 0 or tonumber(valid_ms) - age_ms
  if left_ms <= 0 then return nil end
  return string.sub(record, 1, before) .. digits(left_ms) .. ';' .. gate .. string.sub(record, last + 1)
end
