#!lua flags=allow-oom
-- purge: throw away what waits (ready, urgent, delayed) or what is dead. Deliveries in hand are not touched.
--
-- KEYS     as in parts/keys.lua
-- ARGV[1]  events kept in the stream, about; ARGV[2] 'waiting' or 'dead'
-- Returns  how many messages were thrown away
-- Repeatable: a second call finds nothing.

-- @include keys
-- @include report

local kept, what = ARGV[1], ARGV[2]

local thrown
redis.call('XLEN', events)
if what == 'dead' then
  thrown = redis.call('ZCARD', dead)
  redis.call('UNLINK', dead, graves)
else
  local holes = tonumber(redis.call('HGET', meta, 'holes') or 0)
  thrown = redis.call('LLEN', ready) - holes + redis.call('ZCARD', urgent) + redis.call('ZCARD', delayed)
  redis.call('UNLINK', ready, urgent, delayed, parcels, deadlines, guards)
  redis.call('HDEL', meta, 'holes')
end
if thrown > 0 then
  redis.call('HINCRBY', meta, 'purged', thrown)
  append_events(kept, { { event = 'purged', error_msg = what .. ' ' .. thrown } })
end
return thrown
