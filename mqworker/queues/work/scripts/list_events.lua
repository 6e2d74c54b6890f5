#!lua flags=no-writes
-- list_events: the blocks of a stream without their contents: ids, and how many events each holds.
--
-- KEYS[1]  events
-- ARGV[1]  first, as XRANGE takes it; ARGV[2] last; ARGV[3] how many blocks at most
-- Returns  {id, count, id, count, ...}
-- A script because: the contents are a thousand times larger than what is asked for.

local events = KEYS[1]
local first, last, limit = ARGV[1], ARGV[2], ARGV[3]

local listed = {}
for _, block in ipairs(redis.call('XRANGE', events, first, last, 'COUNT', limit)) do
  local id, fields = block[1], block[2]
  listed[#listed + 1] = id
  -- A foreign block without a count is one event: an unreadable one.
  listed[#listed + 1] = fields[1] == 'n' and tonumber(fields[2]) or 1
end
return listed
