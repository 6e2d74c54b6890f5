-- rqueue: what the five verbs of the RedisMQ document share. Delivered elements have no lease: they stay
-- delivered until acknowledged or recovered, in the order of their last delivery.
-- Needs: keys, record.

local delivered, popped, literal = KEYS[21], KEYS[22], KEYS[23]

-- The queue lives in keys of ours; a foreign value under its bare name is refused as the document demands.
local function holds_wrong_type()
  return redis.call('TYPE', literal).ok ~= 'none'
end

local WRONG_TYPE = 'WRONGTYPE Operation against a key holding the wrong kind of value'

-- popped: id -> 'last delivery ms, deliveries, record', with a space between
local function unpack_popped(text)
  local at_ms, deliveries, record = string.match(text or '', '^(%d+) (%d+) (.*)$')
  return tonumber(at_ms or 0), tonumber(deliveries or 0), record or '' -- foreign bytes count as long ago
end

-- What a client pushed; bytes that are not a record are their own element.
local function element_of(record)
  return is_record(record) and body_of(record) or record
end
