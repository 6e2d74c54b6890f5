#!lua flags=allow-oom
-- note_figures: keep the figures that a dispatcher counted, for a stretch of time; each writes its own fields.
--
-- KEYS     hashes, one for each stretch: 'queue task consumer' -> figures (model/figures.py)
-- ARGV     for each key: ms that it is kept, how many fields follow, and then fields and values
-- Returns  the server's time, ms: by it whoever counts knows in which stretch
-- Repeatable: figures are written as a whole, not added up here.

-- @include clock

local at = 1
for _, stretch in ipairs(KEYS) do
  local kept_ms, last = ARGV[at], at + 1 + 2 * tonumber(ARGV[at + 1])
  for field = at + 2, last, 2 do redis.call('HSET', stretch, ARGV[field], ARGV[field + 1]) end
  redis.call('PEXPIRE', stretch, kept_ms)
  at = last + 1
end
return digits(now_ms)
