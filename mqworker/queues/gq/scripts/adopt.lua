#!lua flags=allow-oom
-- adopt: give a consumer what ended consumers of its node hold, while their workers still live.
--
-- KEYS     as in parts/queue.lua
-- ARGV[1]  consumer, ARGV[2] number of its claim
-- ARGV[3]  how the names of all consumers of its node begin
-- ARGV[4]  ms of silence that mean death
-- ARGV[5]  deliveries of a message after which their count starts anew, see fence_of in queues/gq/rules.py
-- ARGV[6..] two each: id, which delivery of it
-- Returns  {id, ...}: what is the consumer's now, or 'unregistered'; a repeated call changes nothing more
-- Atomic because: the look at the owner and the change belong together.
-- Repeatable because: each delivery of a message is counted; a late call finds another delivery, owner or claim.

-- @include clock
-- @include queue
-- @include consumers
-- @include end

local consumer, claim, family = ARGV[1], ARGV[2], ARGV[3]
local dead_after_ms, wrap, first_held, stride = tonumber(ARGV[4]), tonumber(ARGV[5]), 6, 2

if not is_alive(consumer, dead_after_ms) then return 'unregistered' end

local birth = tonumber(redis.call('ZSCORE', births, consumer))

-- Only from older ones, and its own only from an older claim: this call may come late, after those that followed it.
local function may_be_given(record)
  if record.consumer == consumer then return tonumber(record.claim) < tonumber(claim) end
  local owner_birth = tonumber(redis.call('ZSCORE', births, record.consumer) or nil)
  return string.sub(record.consumer, 1, #family) == family and (not owner_birth or owner_birth < birth)
end

-- Failed at its deadline while it ran: nobody else had it, and its success still counts.
local function is_open(record)
  return record.status == 'consumed' or record.status == 'failed' and record.reason == 'deadline'
end

local function give(record)
  if record.status == 'consumed' then redis.call('ZREM', owned, owner_entry(record)) end
  record.consumer, record.claim = consumer, claim
  if record.status == 'consumed' then redis.call('ZADD', owned, 0, owner_entry(record)) end
  write_record(record)
end

local adopted = {}
for at = first_held, #ARGV, stride do
  local id, delivery = ARGV[at], tonumber(ARGV[at + 1])
  local record = read_record(id)
  if record and record.attempts % wrap == delivery and is_open(record) then
    if may_be_given(record) then give(record) end
    if record.consumer == consumer and record.claim == claim then adopted[#adopted + 1] = id end
  end
end
return adopted
