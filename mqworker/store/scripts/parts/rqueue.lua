-- rqueue: what the five verbs of the RedisMQ document share. Delivered elements have no lease: they stay
-- delivered until acknowledged or recovered, in the order of their last delivery.
-- Needs: keys.

local delivered, popped, literal = KEYS[14], KEYS[15], KEYS[16]

-- The queue lives in keys of ours; a foreign value under its bare name is refused as the document demands.
local function holds_wrong_type()
  return redis.call('TYPE', literal).ok ~= 'none'
end

local WRONG_TYPE = 'WRONGTYPE Operation against a key holding the wrong kind of value'

-- popped: id -> 'last delivery ms, deliveries, record', with a space between
local function unpack_popped(text)
  local at_ms, deliveries, record = string.match(text, '^(%d+) (%d+) (.*)$')
  return tonumber(at_ms), tonumber(deliveries), record
end
