-- keys: the keys of topics, by the names that the GOMQ document lays down, and the types they must have.
--
-- Mirrors queues/topics/keys.py, where it is written down what each holds. Only two are declared: the others are named
-- after consumers and peers that the server alone knows, and lie in any slot. So topics need one server, not a
-- cluster; the caller sees to that.

local subscribed, side = KEYS[1], KEYS[2]
local prefix = string.sub(subscribed, 1, -1 - #'SUBSCRIBED_KEYS')

local function queue_of(key) return prefix .. 'QUEUE_' .. key end

local function consumers_of(key) return prefix .. 'CONSUMERS_' .. key end

local function subscriptions_of(consumer) return prefix .. 'SUBSCRIPTIONS_' .. consumer end

local function peers_of(consumer) return prefix .. 'PEERS_' .. consumer end

local function messages_of(key, consumer, peer) return prefix .. 'MESSAGES_' .. key .. '_' .. consumer .. '_' .. peer end

local function last_action_of(consumer, peer) return prefix .. 'LASTACTION_' .. consumer .. '_' .. peer end

-- While it lives, the backlog of a topic waits for more subscribers.
local function grace_of(key) return side .. ':grace:' .. key end

-- What an error that was caught says; servers differ in whether it is a text or a table.
local function words_of(failure)
  return type(failure) == 'table' and failure.err or tostring(failure)
end

-- The key itself; an error before the first write, if something foreign stands there.
local function of_type(expected, key)
  local found = redis.call('TYPE', key).ok
  if found ~= expected and found ~= 'none' then
    error({ err = 'WRONGTYPE ' .. key .. ' is a ' .. found .. ' and should be a ' .. expected })
  end
  return key
end
