#!lua flags=allow-oom
-- unsubscribe: a consumer id ends listening to a topic, with all its peers and what they had not observed.
--
-- KEYS     as in parts/topic_keys.lua
-- ARGV[1]  key of the topic, ARGV[2] consumer
-- Returns  1 when it was subscribed, 0 when it was not
-- Atomic because: a record that is dispatched in between would lie where nobody observes it.
-- Repeatable: the second time there is nothing to end.

-- @include keys
-- @include peers

local key, consumer = ARGV[1], ARGV[2]

local consumers, subscriptions = of_type('set', consumers_of(key)), of_type('set', subscriptions_of(consumer))
local peers = redis.call('SMEMBERS', of_type('set', peers_of(consumer)))
of_type('set', subscribed)
for _, peer in ipairs(peers) do of_type('list', messages_of(key, consumer, peer)) end

local was_subscribed = redis.call('SISMEMBER', consumers, consumer)
leave(key, consumer)
redis.call('SREM', subscriptions, key)
for _, peer in ipairs(peers) do redis.call('DEL', messages_of(key, consumer, peer)) end
return was_subscribed
