#!lua flags=allow-oom
-- sweep: drop the peers of some consumers that fell silent; a consumer without peers stops listening.
--
-- KEYS     as in parts/keys.lua
-- ARGV[1]  'drop' or 'requeue': what becomes of what they had not observed, see parts/peers.lua
-- ARGV[2..] consumers
-- Returns  {peers dropped, text: what stood in the way of one of the consumers, or ''}
-- Atomic because: a peer that observes in between must be found alive, or gone with all that was its.
-- Repeatable: the second time they are gone.

-- @include keys
-- @include peers

local orphans, first_consumer = ARGV[1], 2

local function sweep(consumer)
  local dropped = drop_silent_peers(consumer, orphans)
  if redis.call('EXISTS', peers_of(consumer)) == 0 then
    check_consumer(consumer)
    forget_consumer(consumer, redis.call('SMEMBERS', subscriptions_of(consumer)))
  end
  return dropped
end

local total, problem = 0, ''
for at = first_consumer, #ARGV do
  local consumer = ARGV[at]
  local is_fit, result = pcall(sweep, consumer)
  if is_fit then total = total + result else problem = words_of(result) end
end
return { total, problem }
