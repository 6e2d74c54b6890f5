#!lua flags=allow-oom
-- note_accident: write down that a worker died over what it ran.
--
-- KEYS[1]  accidents  stream
-- ARGV[1]  how many entries are kept, about; ARGV[2] mark of the accident; ARGV[3] the accident, as JSON
-- Returns  1 noted, 0 it was noted before
-- Repeatable: an entry with the same mark among the newest is the same accident, sent again.

local accidents = KEYS[1]
local kept, mark, told = ARGV[1], ARGV[2], ARGV[3]

for _, entry in ipairs(redis.call('XREVRANGE', accidents, '+', '-', 'COUNT', 50)) do
  if entry[2][2] == mark then return 0 end
end
redis.call('XADD', accidents, 'MAXLEN', '~', kept, '*', 'mark', mark, 'told', told)
return 1
