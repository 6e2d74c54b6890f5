#!lua flags=allow-oom
-- claim: hand over waiting messages to a consumer, each under a lease with a fence of its own.
--
-- KEYS     as in parts/keys.lua; KEYS[21] held, the hash of this consumer: fence -> record
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/calls.lua
-- ARGV[3]  events kept in the stream, about
-- ARGV[4]  how many at the most
-- ARGV[5]  consumer, '' for a lease that expires
-- ARGV[6]  lease ms, for a lease that expires; otherwise it lasts as long as the consumer's heartbeat
-- ARGV[7]  window ms of chosen ids, for messages that turn out to be expired
-- ARGV[8]  a ticket for each that could begin at once, at the most as many as are claimed, with spaces between: for
--          those that do not wait here, the consumer stands ready, and enqueue.lua hands the next messages over to
--          it; '' to withdraw that. A ticket is `<worker>:<number>:<place>`, or
--          `-:<place>` where no worker may start early; both numbers are random, and good for one message
-- ARGV[9..] task and version, for each task whose messages are claimed first where they were parked ('-': any version)
-- Returns  {first fence, {record, ...}}: fences count up from the first; a repeated call may hold false where a
--          delivery was reclaimed meanwhile; {-1, {}} to call again: much was passed over, more may be behind
-- Atomic because: a message that left the line without a lease would be lost with its consumer.

-- @include slices
-- @include keys
-- @include clock
-- @include order
-- @include calls
-- @include record
-- @include place
-- @include slots
-- @include closing
-- @include limited
-- @include parked
-- @include guard
-- @include report
-- @include announce
-- @include take
-- @include take_parked
-- @include fence

local held = KEYS[21]
local lane, number, kept, count = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local consumer, lease_ms, window_ms = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
local tickets = ARGV[8]

local NOTHING, LOOK_AGAIN = '0', '-1'

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier == NOTHING then return { 0, {} } end
if earlier == LOOK_AGAIN then return { -1, {} } end
if earlier then
  local first, last = string.match(earlier, '^(%d+) (%d+)$')
  local fences = {}
  for fence = tonumber(first), tonumber(last) do fences[#fences + 1] = digits(fence) end
  return { tonumber(first), #fences > 0 and read_many('HMGET', held, fences) or {} }
end

local switches = redis.call('HMGET', meta, 'paused', 'offer')
local is_paused, offer = switches[1], switches[2]
if is_paused then
  remember_reply(lane, number, NOTHING)
  return { 0, {} }
end
redis.call('HLEN', held)
redis.call('XLEN', events)
redis.call('HLEN', results)
redis.call('HLEN', slots)
redis.call('SCARD', waiters)
if consumer == '' then
  redis.call('ZCARD', leases)
else
  redis.call('ZCARD', consumers)
end

-- Whoever holds something here, or may be handed something, is known to the reaper; whoever only asked is not.
local function enter()
  redis.call('ZADD', consumers, digits(now_ms), consumer)
end

-- An offer stands only while nothing waits; the latest counts. configure.lua and reap.lua withdraw it, too.
local function offer_to_begin(without)
  local left = {}
  for ticket in string.gmatch(tickets, '%S+') do
    without = without - 1
    if without < 0 then left[#left + 1] = ticket end
  end
  if #left > 0 then
    enter()
    redis.call('HSET', meta, 'offer', consumer .. ' ' .. table.concat(left, ' '))
  elseif offer and string.match(offer, '^%S+') == consumer then
    redis.call('HDEL', meta, 'offer')
  end
end

local found = #ARGV > 8 and take_parked(count, values_from(ARGV, 9), kept, window_ms) or {}
local records, stopped_early = take(count - #found, kept, window_ms)
if #found > 0 then
  for _, record in ipairs(records) do found[#found + 1] = record end
  records, stopped_early = found, false
end
if not stopped_early then offer_to_begin(#records) end
if #records == 0 then
  -- What a copy that comes late took for a consumer that lives, nobody would ever give back.
  local remember = consumer == '' and remember_in_queue or remember_reply
  remember(lane, number, stopped_early and LOOK_AGAIN or NOTHING)
  return { stopped_early and -1 or 0, {} }
end

local first = first_fence(redis.call('HGET', meta, 'fence'), now_ms, #records)
redis.call('HSET', meta, 'fence', digits(first + #records - 1))
local holding = {}
for i, record in ipairs(records) do
  holding[2 * i - 1] = first + i - 1
  holding[2 * i] = record
end
if consumer ~= '' then enter() end
note_slots_of(records, function(i) return digits(first + i - 1) .. '@' .. consumer end)
call_many('HSET', held, holding)
if consumer == '' then
  local ends_at_ms, ends = digits(now_ms + lease_ms), {}
  for i = 1, #records do
    ends[2 * i - 1] = ends_at_ms
    ends[2 * i] = holding[2 * i - 1]
  end
  call_many('ZADD', leases, ends)
end
remember_reply(lane, number, digits(first) .. ' ' .. digits(first + #records - 1))
return { first, records }
