#!lua
-- publish: append records to the main queue of a topic, whether anybody listens or not. All of them or none.
--
-- KEYS     as in parts/keys.lua
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/calls.lua
-- ARGV[3]  key of the topic, ARGV[4] ms after which an unread main queue is dropped, 0 for never
-- ARGV[5..] of each record: the end of its id, 14 characters, and its payload in base64, '' for none
-- Returns  {id, ...}
-- Calls   whoever dispatches, on the channel named like the side key, when the main queue was empty and has listeners
-- Atomic because: a batch is visible whole or not at all, and a repeated call must find what it did before.

-- @include slices
-- @include keys
-- @include order
-- @include calls
-- @include xid
-- @include calendar

local lane, number, key, ttl_ms, first_record = ARGV[1], ARGV[2], ARGV[3], ARGV[4], 5

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then return earlier end
local queue = of_type('list', queue_of(key))
of_type('set', subscribed)

local seconds = tonumber(redis.call('TIME')[1])
local head = '","timestamp":"' .. unix_date(seconds) .. '"'
local make_xid, ids, records = xid_maker(seconds), {}, {}
for at = first_record, #ARGV, 2 do
  local id, payload = make_xid(ARGV[at]), ARGV[at + 1]
  ids[#ids + 1] = id
  records[#records + 1] = '{"id":"' .. id .. head .. (payload ~= '' and ',"payload":"' .. payload .. '"' or '') .. '}'
end
local length = call_many('RPUSH', queue, records)
if ttl_ms ~= '0' then redis.call('PEXPIRE', queue, ttl_ms) end
if length == #records and redis.call('SISMEMBER', subscribed, queue) == 1 then redis.call('SPUBLISH', side, 'ready') end
return remember_reply(lane, number, ids)
