#!lua
-- dispatch: move the oldest records of a main queue to the dedicated queue of every peer that listens.
-- Peers that fell silent are dropped on the way. A main queue that nobody listens to, or whose backlog still waits
-- for more subscribers, is left alone.
--
-- KEYS     as in parts/keys.lua
-- ARGV[1]  key of the topic, ARGV[2] how many records at the most
-- ARGV[3]  'drop' or 'requeue': what becomes of what a silent peer had not observed, see parts/peers.lua
-- Returns  {records moved, records left that could be moved now, ms until a backlog has waited long enough or 0},
--          or a text: what stands in the way
-- Atomic because: a record that was popped and not yet copied to all would be lost to some for ever.
-- Repeatable: again, it moves the next ones.

-- @include slices
-- @include keys
-- @include peers

local key, count, orphans = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local MOST_COPIES = 10000 -- in one call: nobody else should wait long for it

-- The dedicated queues of all peers that listen, and consumers of which some or all peers do not any more.
local function listeners()
  local lists, silent = {}, {}
  for _, consumer in ipairs(redis.call('SMEMBERS', of_type('set', consumers_of(key)))) do
    local heard = 0
    local peers = redis.call('SMEMBERS', of_type('set', peers_of(consumer)))
    for _, peer in ipairs(peers) do
      if not is_silent(consumer, peer) then
        lists[#lists + 1] = of_type('list', messages_of(key, consumer, peer))
        heard = heard + 1
      end
    end
    if heard < #peers or heard == 0 then
      check_consumer(consumer)
      silent[#silent + 1] = consumer
    end
  end
  of_type('list', queue_of(key))
  of_type('set', subscribed)
  return { lists = lists, silent = silent }
end

local is_fit, found = pcall(listeners)
if not is_fit then return words_of(found) end
for _, consumer in ipairs(found.silent) do
  drop_silent_peers(consumer, orphans)
  if redis.call('EXISTS', peers_of(consumer)) == 0 then -- also one that another program left without any
    forget_consumer(consumer, redis.call('SMEMBERS', subscriptions_of(consumer)))
    leave(key, consumer)
  end
end
local lists, queue = found.lists, queue_of(key)
if #lists == 0 then
  if redis.call('EXISTS', consumers_of(key)) == 0 then redis.call('SREM', subscribed, queue) end
  return { 0, 0, 0 }
end
local wait_ms = redis.call('PTTL', grace_of(key))
if wait_ms >= 0 then return { 0, 0, math.max(1, wait_ms) } end

local records = redis.call('LPOP', queue, math.min(count, math.max(1, math.floor(MOST_COPIES / #lists))))
if not records then return { 0, 0, 0 } end
for _, list in ipairs(lists) do call_many('RPUSH', list, records) end
return { #records, redis.call('LLEN', queue), 0 }
