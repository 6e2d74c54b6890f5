#!lua
-- enqueue_bulk: store plain messages of one part of a bulk run, if they go on exactly where the part stands.
-- All of them, or nothing. Several attempts at a part may be under way, each from its beginning: of a part is noted
-- how many rows are stored and a digest over all of them, so each attempt learns how far the others came, and
-- whether they had the same rows (decision 10).
--
-- KEYS     meta, ready, urgent, delayed, events as for enqueue.lua; progress, a hash: part -> 'rows digest'
-- ARGV[1]  part
-- ARGV[2]  the progress from which the batch goes on; '' at the beginning of the part
-- ARGV[3]  the progress with the batch
-- ARGV[4]  how long progress is kept from now on, ms
-- ARGV[5]  events kept in the stream, about
-- ARGV[6]  codec, ARGV[7] block: the `enqueued` events, in the order of the messages
-- ARGV[8..] records without their first 13 characters, which the server's clock supplies
-- Returns  the progress that is noted now, '' for none: ARGV[3] when this batch is stored, by this call or before
-- Errors   MQW_FULL when the queue's length limit would be passed
-- Repeatable because: a batch fits its place once; the second time the progress is another.

-- @include slices

local meta, ready, urgent, delayed, events, progress = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local part, before, after, progress_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local kept, codec, block, first_message = ARGV[5], ARGV[6], ARGV[7], 8

local noted = redis.call('HGET', progress, part) or ''
if noted ~= before then return noted end

local total = #ARGV - first_message + 1
local known = redis.call('HMGET', meta, 'limit', 'holes', 'events_kept', 'offer')
local limit, holes, offer = known[1], known[2] or 0, known[4]
kept = known[3] or kept -- an archiver wants more kept than the cap would

local length = redis.call('LLEN', ready)
if limit then
  local waiting = length - holes + redis.call('ZCARD', urgent) + redis.call('ZCARD', delayed)
  if waiting + total > tonumber(limit) then
    return redis.error_reply('MQW_FULL ' .. waiting .. ' waiting, ' .. total .. ' more would pass the limit of ' .. limit)
  end
end

local block_id = redis.call('XADD', events, 'MAXLEN', '~', kept, '*', 'n', total, codec, block)
local stamp = string.sub(block_id, 1, 13)
local records = {}
for i = 1, total do records[i] = stamp .. ARGV[first_message + i - 1] end
call_many('RPUSH', ready, records)
redis.call('HINCRBY', meta, 'enqueued', total)
redis.call('HSET', progress, part, after)
redis.call('PEXPIRE', progress, progress_ms)
-- An offer beside messages: whoever put them there woke nobody (parts/place.lua, is_overlooked).
if length == 0 or (offer and offer ~= '') then redis.call('SPUBLISH', meta, 'ready') end
return after
