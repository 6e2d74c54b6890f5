#!lua flags=allow-oom
-- forget: drop what is remembered longer than needed: replies of lanes long unused, guards that ended.
--
-- KEYS     as in parts/keys.lua
-- ARGV[1]  ms since its last call after which a lane is forgotten
-- ARGV[2]  cursor of the calls, ARGV[3] cursor of the guards: '0' to begin, '' when through
-- Returns  {cursor of the calls, cursor of the guards}, '' when through
-- Repeatable: dropping twice is dropping once.

-- @include keys
-- @include clock

local lane_ms, calls_cursor, guards_cursor = tonumber(ARGV[1]), ARGV[2], ARGV[3]

redis.call('HLEN', guards) -- a foreign type shows itself before the first write

local function drop_old(key, cursor, fields, pattern, is_old)
  if cursor == '' then return '' end
  local page = redis.call('HSCAN', key, cursor, 'MATCH', fields, 'COUNT', 500)
  for i = 1, #page[2], 2 do
    local at_ms = tonumber(string.match(page[2][i + 1], pattern))
    if at_ms and is_old(at_ms, page[2][i]) then redis.call('HDEL', key, page[2][i]) end
  end
  return page[1] == '0' and '' or page[1]
end

-- How far the outbox of a database is moved is never forgotten: its rows may come again at any time (decision 44).
local function is_old_call(at_ms, field)
  return at_ms < now_ms - lane_ms and string.sub(field, 1, 8) ~= '@outbox:'
end

return {
  drop_old(meta, calls_cursor, '@*', '^%d+ (%d+) ', is_old_call),
  drop_old(guards, guards_cursor, '*', ' (%d+)$', function(at_ms) return at_ms > 0 and at_ms <= now_ms end),
}
