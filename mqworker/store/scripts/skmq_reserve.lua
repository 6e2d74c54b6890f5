#!lua
-- skmq_reserve: note where messages are about to be stored, unless one of the same msgid is known already.
-- Whether the known one still lives, only its queue can say (skmq_holder.lua); then this is called again with its id.
--
-- KEYS[1]  index    hash    msgid -> 'at_ms queue id [consumer fence]'
-- KEYS[2]  queues   set
-- ARGV[1]  ms after which an entry counts no more; then four arguments for each message, no msgid twice: msgid,
--          id, queue, id of the message that it may replace ('' is none)
-- Returns  {entry, ...}: for each message '' when it was noted, else the entry that is there
-- Repeatable: an entry with the same id is the caller's own.

-- @include clock

local index, queues = KEYS[1], KEYS[2]
local guard_ms, first_message, stride = tonumber(ARGV[1]), 2, 4

redis.call('SCARD', queues) -- a foreign type shows itself before the first write
local msgids, stamp = {}, digits(now_ms)
for at = first_message, #ARGV, stride do msgids[#msgids + 1] = ARGV[at] end
local entries = redis.call('HMGET', index, unpack(msgids))

local function is_taken(entry, id, old_id)
  local at_ms, known_id = string.match(entry, '^(%d+) [^ ]+ ([^ ]+)')
  return known_id and known_id ~= id and known_id ~= old_id and tonumber(at_ms) + guard_ms > now_ms
end

local replies, noted, seen = {}, {}, {}
for i, msgid in ipairs(msgids) do
  local _, id, queue, old_id = unpack(ARGV, first_message + (i - 1) * stride, first_message + i * stride - 1)
  if entries[i] and is_taken(entries[i], id, old_id) then
    replies[i] = entries[i]
  else
    replies[i] = ''
    noted[#noted + 1] = msgid
    noted[#noted + 1] = stamp .. ' ' .. queue .. ' ' .. id
  end
  if not seen[queue] then redis.call('SADD', queues, queue) end
  seen[queue] = true
end
if #noted > 0 then redis.call('HSET', index, unpack(noted)) end
return replies
