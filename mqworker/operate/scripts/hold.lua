#!lua flags=no-writes,allow-oom
-- hold: what consumers of one queue hold, the beginning of each record: bodies stay here, they may be large.
--
-- KEYS     held, hashes fence -> record, one for each consumer
-- ARGV[1]  how many of each at the most, about; ARGV[2] how many characters of a record
-- Returns  {{record, ...}, ...}: for each key, in order

local most, length = tonumber(ARGV[1]), tonumber(ARGV[2])

local reply = {}
for i, held in ipairs(KEYS) do
  local found = {}
  local fields = redis.call('HSCAN', held, 0, 'COUNT', most)[2]
  for at = 2, math.min(#fields, 2 * most), 2 do found[#found + 1] = string.sub(fields[at], 1, length) end
  reply[i] = found
end
return reply
