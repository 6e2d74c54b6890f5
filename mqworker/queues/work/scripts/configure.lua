#!lua flags=allow-oom
-- configure: set or clear switches of a queue (paused, limit) and wake whoever may go on now.
--
-- KEYS     as in parts/keys.lua
-- ARGV     name, value, ... ('' clears)
-- Returns  'OK'
-- Repeatable: the same switches stand the same way.

-- @include keys

redis.call('HDEL', meta, 'offer') -- a paused queue hands nothing over; otherwise whoever is idle offers again
for i = 1, #ARGV, 2 do
  local name, value = ARGV[i], ARGV[i + 1]
  if value == '' then
    redis.call('HDEL', meta, name)
  else
    redis.call('HSET', meta, name, value)
  end
end
redis.call('SPUBLISH', meta, 'ready')
return redis.status_reply('OK')
