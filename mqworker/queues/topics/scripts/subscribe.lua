#!lua
-- subscribe: a peer begins to listen to a topic under a consumer id; again changes nothing.
--
-- KEYS     as in parts/keys.lua
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/calls.lua
-- ARGV[3]  key of the topic, ARGV[4] consumer, ARGV[5] peer, which has no '_'
-- ARGV[6]  ms after which a silent peer is dropped
-- ARGV[7]  ms for which a backlog waits for more subscribers after its first
-- Returns  1, or {key, consumer} of the peer's that has dedicated queues of the same name
-- Atomic because: a consumer that stands in one of the sets only is never served, or never dropped.
-- Numbered because: a copy that comes late would bring back who has unsubscribed.

-- @include keys
-- @include order
-- @include calls
-- @include calendar

local lane, number, key, consumer, peer = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local silent_ms, grace_ms = ARGV[6], tonumber(ARGV[7])

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then return earlier end

-- '_' stands between the names and may stand in them: A_B + C and A + B_C are one name. It is refused to a peer that
-- has both, for they would read from one another's queue.
local function other_of_same_name(its_key, its_peer)
  local name, at = its_key .. '_' .. consumer, 0
  while true do
    at = string.find(name, '_', at + 1, true)
    if not at then return nil end
    local other_key, other = string.sub(name, 1, at - 1), string.sub(name, at + 1)
    if
      other ~= consumer
      and redis.call('SISMEMBER', of_type('set', subscriptions_of(other)), other_key) == 1
      and redis.call('SISMEMBER', of_type('set', peers_of(other)), its_peer) == 1
    then
      return { other_key, other }
    end
  end
end

local consumers, queue = of_type('set', consumers_of(key)), of_type('list', queue_of(key))
local peers, subscriptions = of_type('set', peers_of(consumer)), of_type('set', subscriptions_of(consumer))
local last_action = of_type('string', last_action_of(consumer, peer))
of_type('list', messages_of(key, consumer, peer))
of_type('set', subscribed)
of_type('set', side)

local taken = other_of_same_name(key, peer)
-- All peers of a consumer id are served all its topics: each list that this call brings about is looked at.
for _, other_peer in ipairs(redis.call('SMEMBERS', peers)) do
  taken = taken or other_of_same_name(key, other_peer)
end
for _, other_key in ipairs(redis.call('SMEMBERS', subscriptions)) do
  taken = taken or other_of_same_name(other_key, peer)
end
if taken then return remember_reply(lane, number, taken) end

local is_first = redis.call('SCARD', consumers) == 0
if is_first and grace_ms > 0 and redis.call('LLEN', queue) > 0 then
  redis.call('SET', grace_of(key), '1', 'PX', grace_ms)
end
redis.call('SADD', consumers, consumer)
redis.call('SADD', subscriptions, key)
redis.call('SADD', peers, peer)
redis.call('SADD', subscribed, queue)
redis.call('SADD', side, consumer)
local time = redis.call('TIME')
redis.call('SET', last_action, go_time(tonumber(time[1]), tonumber(time[2])), 'PX', silent_ms)
return remember_reply(lane, number, 1)
