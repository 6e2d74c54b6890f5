#!lua flags=allow-oom
-- note: write down what somebody did, in the stream of the audit.
--
-- KEYS[1]  audit  stream
-- ARGV[1]  how many entries are kept, about; ARGV[2] mark of the action; ARGV[3..] fields and values
-- Returns  1 noted, 0 it was noted before
-- Repeatable: an entry with the same mark among the newest is the same call, sent again.

-- @include slices

local audit = KEYS[1]
local kept, mark = ARGV[1], ARGV[2]
local fields = values_from(ARGV, 3)

for _, entry in ipairs(redis.call('XREVRANGE', audit, '+', '-', 'COUNT', 50)) do
  if entry[2][2] == mark then return 0 end
end
redis.call('XADD', audit, 'MAXLEN', '~', kept, '*', 'mark', mark, unpack(fields))
return 1
