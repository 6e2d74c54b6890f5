#!lua flags=allow-oom
-- note: write down who holds messages that are about to be pushed, so that feedback at any node finds them.
--
-- KEYS[1]  index    hash    msgid, or 'msgid\nkey' for a topic's copy -> 'at_ms queue id consumer fence'
-- ARGV     pairs: field, entry without its first number
-- Returns  how many
-- Repeatable: the second time writes the same.

-- @include clock

local index, first_pair = KEYS[1], 1
for at = first_pair, #ARGV, 2 do
  redis.call('HSET', index, ARGV[at], digits(now_ms) .. ' ' .. ARGV[at + 1])
end
return #ARGV / 2
