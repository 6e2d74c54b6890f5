#!lua flags=allow-oom
-- topic_observe: a peer takes the oldest records of its dedicated queues, and is thereby known to be alive.
--
-- KEYS     as in parts/topic_keys.lua
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/topic_calls.lua; its reply is remembered whole, for the records
--          are nowhere else any more
-- ARGV[3]  consumer, ARGV[4] peer, ARGV[5] how many of each topic, ARGV[6] ms after which a silent peer is dropped
-- Returns  {key, {record, ...}, key, {record, ...}, ...}, only topics that had some
-- Atomic because: two calls of one peer would otherwise read the same records before either removed them.

-- @include topic_keys
-- @include topic_calls
-- @include calendar

local lane, number, consumer, peer, count, silent_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local earlier = earlier_reply(lane, number)
if earlier then return earlier end
local last_action = of_type('string', last_action_of(consumer, peer))
local keys = redis.call('SMEMBERS', of_type('set', subscriptions_of(consumer)))
for _, key in ipairs(keys) do of_type('list', messages_of(key, consumer, peer)) end

local time = redis.call('TIME')
redis.call('SET', last_action, go_time(tonumber(time[1]), tonumber(time[2])), 'PX', silent_ms)
local reply = {}
for _, key in ipairs(keys) do
  local records = redis.call('LPOP', messages_of(key, consumer, peer), count)
  if records then
    reply[#reply + 1] = key
    reply[#reply + 1] = records
  end
end
return #reply > 0 and remember_reply(lane, number, reply) or reply
