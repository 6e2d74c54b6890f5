#!lua flags=allow-oom
-- observe: a peer takes the oldest records of its dedicated queues, and is thereby known to be alive.
--
-- KEYS     as in parts/keys.lua
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/calls.lua; its reply is remembered whole, for the records
--          are nowhere else any more
-- ARGV[3]  consumer, ARGV[4] peer, ARGV[5] how many of each topic, ARGV[6] ms after which a silent peer is dropped
-- ARGV[7]  bytes after which no further record is taken: what a client cannot receive would be lost
-- Returns  {key, {record, ...}, key, {record, ...}, ...}, only topics that had some
-- Atomic because: two calls of one peer would otherwise read the same records before either removed them.

-- @include keys
-- @include order
-- @include calls
-- @include calendar

local lane, number, consumer, peer = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local count, silent_ms, bytes_left = tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7])

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then return earlier end
local last_action = of_type('string', last_action_of(consumer, peer))
local keys = redis.call('SMEMBERS', of_type('set', subscriptions_of(consumer)))
for _, key in ipairs(keys) do of_type('list', messages_of(key, consumer, peer)) end

local time = redis.call('TIME')
redis.call('SET', last_action, go_time(tonumber(time[1]), tonumber(time[2])), 'PX', silent_ms)
local reply = {}

-- The first record is taken however large it is; of the others those that fit.
local function take(key)
  local list, taken = messages_of(key, consumer, peer), {}
  for _, record in ipairs(redis.call('LRANGE', list, 0, count - 1)) do
    bytes_left = bytes_left - #record
    if bytes_left < 0 and (#reply > 0 or #taken > 0) then break end
    taken[#taken + 1] = record
  end
  if #taken == 0 then return end
  redis.call('LPOP', list, #taken)
  reply[#reply + 1] = key
  reply[#reply + 1] = taken
end

-- Not always from the same topic on, or one that is never empty would starve the others.
for i = 1, #keys do
  if bytes_left > 0 then take(keys[(i + tonumber(number)) % #keys + 1]) end
end
return remember_reply(lane, number, reply)
