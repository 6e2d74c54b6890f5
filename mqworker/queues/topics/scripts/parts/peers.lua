-- peers: the end of a peer that fell silent, and of a consumer id without peers.
-- Needs: topic_keys.

local function is_silent(consumer, peer)
  return redis.call('EXISTS', last_action_of(consumer, peer)) == 0
end

-- Looks at everything that dropping a peer may touch, before the first write.
local function check_consumer(consumer)
  of_type('set', subscribed)
  of_type('set', side)
  local peers = redis.call('SMEMBERS', of_type('set', peers_of(consumer)))
  for _, key in ipairs(redis.call('SMEMBERS', of_type('set', subscriptions_of(consumer)))) do
    of_type('set', consumers_of(key))
    of_type('list', queue_of(key))
    for _, peer in ipairs(peers) do of_type('list', messages_of(key, consumer, peer)) end
  end
end

-- A main queue without listeners is not looked at any more; what is published there waits.
local function leave(key, consumer)
  redis.call('SREM', consumers_of(key), consumer)
  if redis.call('EXISTS', consumers_of(key)) == 0 then redis.call('SREM', subscribed, queue_of(key)) end
end

local function forget_consumer(consumer, keys)
  for _, key in ipairs(keys) do leave(key, consumer) end
  redis.call('DEL', subscriptions_of(consumer))
  redis.call('SREM', side, consumer)
end

-- orphans: 'drop' what the peer had not observed, or 'requeue' it where nobody else is left who has a copy.
local function drop_peer(consumer, peer, orphans)
  redis.call('SREM', peers_of(consumer), peer)
  local keys = redis.call('SMEMBERS', subscriptions_of(consumer))
  if redis.call('EXISTS', peers_of(consumer)) == 0 then forget_consumer(consumer, keys) end
  for _, key in ipairs(keys) do
    local unread, queue = messages_of(key, consumer, peer), queue_of(key)
    if orphans == 'requeue' and redis.call('EXISTS', consumers_of(key)) == 0 then
      while redis.call('LMOVE', unread, queue, 'RIGHT', 'LEFT') do end
    end
    redis.call('DEL', unread)
  end
end

-- Drops those peers of a consumer that fell silent; how many.
local function drop_silent_peers(consumer, orphans)
  local dropped = 0
  for _, peer in ipairs(redis.call('SMEMBERS', peers_of(consumer))) do
    if is_silent(consumer, peer) then
      if dropped == 0 then check_consumer(consumer) end
      drop_peer(consumer, peer, orphans)
      dropped = dropped + 1
    end
  end
  return dropped
end
