#!lua flags=allow-oom
-- unsubscribe: a consumer id ends listening to a topic, with all its peers and what they had not observed.
--
-- KEYS     as in parts/keys.lua
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/calls.lua
-- ARGV[3]  key of the topic, ARGV[4] consumer
-- Returns  1 when it was subscribed, 0 when it was not
-- Atomic because: a record that is dispatched in between would lie where nobody observes it.
-- Numbered because: a copy that comes late would end what was subscribed again, and lose its records.

-- @include keys
-- @include order
-- @include calls
-- @include peers

local lane, number, key, consumer = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then return earlier end

local consumers, subscriptions = of_type('set', consumers_of(key)), of_type('set', subscriptions_of(consumer))
local peers = redis.call('SMEMBERS', of_type('set', peers_of(consumer)))
of_type('set', subscribed)
for _, peer in ipairs(peers) do of_type('list', messages_of(key, consumer, peer)) end

local was_subscribed = redis.call('SISMEMBER', consumers, consumer)
leave(key, consumer)
redis.call('SREM', subscriptions, key)
for _, peer in ipairs(peers) do redis.call('DEL', messages_of(key, consumer, peer)) end
return remember_reply(lane, number, was_subscribed)
