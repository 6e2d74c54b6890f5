#!lua flags=no-writes,allow-oom
-- promote: when the next delayed message is due. It becomes visible by itself, so there is nothing to move.
--
-- KEYS     as in parts/queue.lua
-- Returns  ms until then, or -1 when none is delayed; one that was received before is not a delayed one
-- Repeatable: it only reads. It looks at the next hundred hidden messages, which is as good as a wake-up has to be.

-- @include clock
-- @include queue

local hidden = redis.call('ZRANGEBYSCORE', line, '(' .. digits(now_ms), '+inf', 'WITHSCORES', 'LIMIT', 0, 100)
for i = 1, #hidden, 2 do
  local id, visible_at_ms = hidden[i], tonumber(hidden[i + 1])
  if redis.call('HEXISTS', messages, id .. ':rc') == 0 then return visible_at_ms - now_ms end
end
return -1
