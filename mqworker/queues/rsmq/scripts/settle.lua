#!lua flags=allow-oom
-- settle: end deliveries that are still held: delete, show again, or move to the dead letters, which are ours.
--
-- KEYS     as in parts/queue.lua; KEYS[4] held, KEYS[5] leases, see parts/leases.lua; KEYS[6..8]
--          dead letters, see parts/dead.lua
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/side_calls.lua
-- ARGV[3..] three each: 'ack', fence, ''; 'again', fence, due; 'front', fence, ''; 'bury', fence, letter (JSON)
-- Returns  {position from 0, ...}: deliveries that were not settled, because their lease was lost
-- Atomic because: a message must not vanish on its way to the dead, nor be deleted while somebody else works on it.

-- @include clock
-- @include queue
-- @include order
-- @include side_calls
-- @include leases
-- @include dead

local lane, number, first_settlement, stride = ARGV[1], ARGV[2], 3, 3

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then return cjson.decode(earlier) end
redis.call('HLEN', held) -- foreign types show themselves before the first write
redis.call('ZCARD', leases)
redis.call('HLEN', dead)
redis.call('ZCARD', buried)
redis.call('HLEN', letters)

local function remove(id)
  redis.call('ZREM', line, id)
  redis.call('HDEL', messages, id, id .. ':rc', id .. ':fr')
end

local function bury(id, letter)
  redis.call('ZADD', buried, digits(now_ms), id)
  redis.call('HSET', dead, id, redis.call('HGET', messages, id) or '')
  redis.call('HSET', letters, id, letter)
  remove(id)
end

local lost = {}
for at = first_settlement, #ARGV, stride do
  local verdict, fence, more = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local id = held_id(fence)
  if not id then
    lost[#lost + 1] = (at - first_settlement) / stride
  elseif verdict == 'ack' then
    remove(id)
  elseif verdict == 'bury' then
    bury(id, more)
  else
    redis.call('ZADD', line, verdict == 'front' and old_place(id) or digits(math.max(instant_ms(more), now_ms)), id)
  end
  let_go(fence)
end
remember_reply(lane, number, #lost == 0 and '[]' or cjson.encode(lost))
return lost
