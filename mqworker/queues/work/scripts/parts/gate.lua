-- gate: where limited messages wait for their permit. They are delayed messages without an instant, so that cancel,
-- expire, find and purge treat them like any delayed one; the gate only keeps their order.
-- There is a list for each gate. Its key is in the queue's slot, made from the name of a declared one (decision 9).
-- Needs: keys, clock, place.

local PERMIT_NEEDED_MS = 9e15 -- due when a permit is there, and not by itself

local function gate_key(gate)
  return string.sub(meta, 1, -5) .. 'gate:' .. gate
end

local function place_limited(gate, id, record)
  place_delayed(id, record, PERMIT_NEEDED_MS)
  redis.call('RPUSH', gate_key(gate), id)
  redis.call('ZADD', gates, 'NX', digits(now_ms), gate)
end
