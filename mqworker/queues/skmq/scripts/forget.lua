#!lua flags=allow-oom
-- forget: drop entries of messages that are settled; an entry of a later message stays.
--
-- KEYS[1]  index    hash    field -> 'at_ms queue id [consumer fence]'
-- ARGV     pairs: field, id
-- Returns  how many were dropped
-- Repeatable: the second time finds nothing.

local index, dropped = KEYS[1], 0
for at = 1, #ARGV, 2 do
  local entry = redis.call('HGET', index, ARGV[at])
  if entry and string.match(entry, '^%d+ [^ ]+ ([^ ]+)') == ARGV[at + 1] then
    dropped = dropped + redis.call('HDEL', index, ARGV[at])
  end
end
return dropped
