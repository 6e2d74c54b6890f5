#!lua
-- keep_log: keep what a task logged, the newest lines only.
--
-- KEYS[1]  log  list  lines of one message, the oldest first
-- ARGV[1]  ms that it is kept; ARGV[2] how many lines, ARGV[3] how many bytes at the most; ARGV[4..] more lines
-- Returns  how many lines are kept
-- Sent once: a line that was lost is lost, none stands there twice.

-- @include slices

local log = KEYS[1]
local kept_ms, most_lines, most_bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

call_many('RPUSH', log, values_from(ARGV, 4))
redis.call('LTRIM', log, -most_lines, -1)
local lines, bytes = redis.call('LRANGE', log, 0, -1), 0
local first = #lines + 1
while first > 1 and bytes + #lines[first - 1] <= most_bytes do
  first = first - 1
  bytes = bytes + #lines[first]
end
redis.call('LTRIM', log, first - 1, -1)
redis.call('PEXPIRE', log, kept_ms)
return #lines - first + 1
