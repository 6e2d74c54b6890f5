#!lua flags=allow-oom
-- clear_outbox: what followed from the end of workflow members was done; their guards last for the window from now.
--
-- KEYS     as in parts/keys.lua
-- ARGV[1]  window ms in which an id stays taken; then member, the first letter of how it ended, ...
-- Returns  how many were cleared
-- Repeatable: a second call finds nothing. A member that was revived meanwhile and ended in another way stays: that
-- end was not counted yet.

-- @include keys
-- @include clock

local window_ms = tonumber(ARGV[1])

redis.call('HLEN', guards) -- a foreign type shows itself before the first write
local cleared = 0
for at = 2, #ARGV, 2 do
  local id, kind = ARGV[at], ARGV[at + 1]
  local outcome = redis.call('HGET', outbox, id)
  if outcome and string.sub(outcome, 1, 1) == kind then
    redis.call('HDEL', outbox, id)
    cleared = cleared + 1
    if redis.call('HEXISTS', guards, 'flow:' .. id) == 1 then
      redis.call('HSET', guards, 'flow:' .. id, id .. ' ' .. digits(now_ms + window_ms))
    end
  end
end
return cleared
