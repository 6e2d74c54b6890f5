#!lua flags=allow-oom
-- rsmq_settle: end deliveries that are still held: delete, show again, or move to the queue of dead letters.
--
-- KEYS     as in parts/rsmq_queue.lua; KEYS[4] held, KEYS[5] leases, see parts/rsmq_leases.lua; KEYS[6] registry,
--          KEYS[7] dead messages, KEYS[8] dead line: the RSMQ queue of dead letters; KEYS[9] letters: id -> why
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/rsmq_calls.lua
-- ARGV[3..] three each: 'ack', fence, ''; 'again', fence, due; 'front', fence, ''; 'bury', fence, letter (JSON)
-- Returns  {position from 0, ...}: deliveries that were not settled, because their lease was lost
-- Atomic because: a message must not vanish between two queues, nor be deleted while somebody else works on it.

-- @include clock
-- @include rsmq_queue
-- @include rsmq_calls
-- @include rsmq_leases

local registry, dead_messages, dead_line, letters = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local lane, number, first_settlement, stride = ARGV[1], ARGV[2], 3, 3

local earlier = earlier_reply(lane, number)
if earlier then return cjson.decode(earlier) end
redis.call('HLEN', held) -- foreign types show themselves before the first write
redis.call('ZCARD', leases)
redis.call('SCARD', registry)
redis.call('HLEN', dead_messages)
redis.call('ZCARD', dead_line)
redis.call('HLEN', letters)

local function remove(id)
  redis.call('ZREM', line, id)
  redis.call('HDEL', messages, id, id .. ':rc', id .. ':fr')
end

local function make_dead_queue()
  local now_s = digits(math.floor(now_ms / 1000))
  redis.call('HSET', dead_messages, 'vt', 30, 'delay', 0, 'maxsize', -1, 'created', now_s, 'modified', now_s)
  redis.call('SADD', registry, string.match(dead_line, '[^:]+$'))
end

-- Letters of messages that somebody took from the queue of dead letters are of no use.
local function drop_old_letters()
  for _, id in ipairs(redis.call('HRANDFIELD', letters, 10)) do
    if not redis.call('ZSCORE', dead_line, id) then redis.call('HDEL', letters, id) end
  end
end

local function bury(id, letter)
  drop_old_letters()
  if redis.call('HEXISTS', dead_messages, 'vt') == 0 then make_dead_queue() end
  redis.call('ZADD', dead_line, digits(now_ms), id)
  redis.call('HSET', dead_messages, id, redis.call('HGET', messages, id) or '')
  redis.call('HINCRBY', dead_messages, 'totalsent', 1)
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
if #lost < (#ARGV - first_settlement + 1) / stride then
  remember_reply(lane, number, #lost == 0 and '[]' or cjson.encode(lost))
end
return lost
