#!lua flags=allow-oom
-- note: write down who holds messages that are about to be pushed, so that feedback at any node finds them.
--
-- KEYS[1]  index    hash    msgid, or 'msgid\nkey' for a topic's copy -> 'at_ms queue id consumer fence'
-- ARGV     pairs: field, entry without its first number
-- Returns  how many
-- Repeatable: the second time writes the same. A copy that comes late does not replace a later delivery's entry.

-- @include clock

local index, first_pair = KEYS[1], 1

-- Fences of a queue go up: a smaller one of the same message belongs to an earlier delivery.
local function is_older(field, entry)
  local known_id, known_fence = string.match(redis.call('HGET', index, field) or '', '^%d+ ([^ ]+ [^ ]+) [^ ]+ (%d+)$')
  local id, fence = string.match(entry, '^([^ ]+ [^ ]+) [^ ]+ (%d+)$')
  return known_id and known_id == id and tonumber(known_fence) > tonumber(fence)
end

for at = first_pair, #ARGV, 2 do
  local field, entry = ARGV[at], ARGV[at + 1]
  if not is_older(field, entry) then redis.call('HSET', index, field, digits(now_ms) .. ' ' .. entry) end
end
return #ARGV / 2
