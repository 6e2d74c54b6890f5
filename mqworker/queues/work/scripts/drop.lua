#!lua flags=allow-oom
-- drop: throw away some dead letters, by their ids. What waits or runs under the same id is not touched.
--
-- KEYS     as in parts/keys.lua
-- ARGV[1]  events kept in the stream, about; ARGV[2..] ids
-- Returns  {id, ...}: those that were dead letters
-- Repeatable: an id that was dropped is not a dead letter any more.

-- @include keys
-- @include report

local kept = ARGV[1]

redis.call('XLEN', events) -- foreign types show themselves before the first write
redis.call('HLEN', letters)
redis.call('HGET', meta, 'purged')

local dropped = {}
for i = 2, #ARGV do
  local id = ARGV[i]
  if redis.call('ZREM', dead, id) + redis.call('HDEL', letters, id) > 0 then dropped[#dropped + 1] = id end
end
if #dropped > 0 then
  redis.call('HINCRBY', meta, 'purged', #dropped)
  append_events(kept, { { event = 'purged', error_msg = 'dead ' .. #dropped } })
end
return dropped
