#!lua
-- reserve: note where messages are about to be stored, unless one of the same msgid is known already.
-- Whether the known one still lives, only its queue can say (holder.lua); then this is called again with its id.
--
-- KEYS[1]  index    hash    msgid -> 'at_ms queue id [consumer fence]'
-- KEYS[2]  queues   set
-- ARGV[1]  ms after which an entry counts no more, ARGV[2] queue of all these messages, ARGV[3] id of a message that is
--          known to be gone and may be replaced ('' is none); then for each message, no msgid twice: msgid, id
-- Returns  {entry, ...}: for each message '' when it was noted, else the entry that is there
-- Repeatable: an entry with the same id is the caller's own.

-- @include slices
-- @include clock

local index, queues = KEYS[1], KEYS[2]
local guard_ms, queue, gone_id, first_message, stride = tonumber(ARGV[1]), ARGV[2], ARGV[3], 4, 2

redis.call('SCARD', queues) -- a foreign type shows itself before the first write
local msgids, before_id = {}, digits(now_ms) .. ' ' .. queue .. ' '
for at = first_message, #ARGV, stride do msgids[#msgids + 1] = ARGV[at] end
local entries = read_many('HMGET', index, msgids)

local function is_taken(entry, id)
  local at_ms, known_id = string.match(entry, '^(%d+) [^ ]+ ([^ ]+)')
  return known_id and known_id ~= id and known_id ~= gone_id and tonumber(at_ms) + guard_ms > now_ms
end

local replies, noted = {}, {}
for i, msgid in ipairs(msgids) do
  local id = ARGV[first_message + (i - 1) * stride + 1]
  if entries[i] and is_taken(entries[i], id) then
    replies[i] = entries[i]
  else
    replies[i] = ''
    noted[#noted + 1] = msgid
    noted[#noted + 1] = before_id .. id
  end
end
redis.call('SADD', queues, queue)
if #noted > 0 then call_many('HSET', index, noted) end
return replies
