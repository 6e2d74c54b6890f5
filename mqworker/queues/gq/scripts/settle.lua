#!lua flags=allow-oom
-- settle: write the results of callbacks: processed, queued again or failed.
--
-- KEYS     as in parts/queue.lua
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/side_calls.lua
-- ARGV[3]  'fail' if an error after the deadline is the end, 'retry' if not
-- ARGV[4]  retries allowed, '' without limit
-- ARGV[5]  ms, ARGV[6] count: how long and how many ended messages are kept
-- ARGV[7..] four each: id, consumer, number of its claim, 'ok' or 'error'
-- Returns  {id, ...}: messages that were lost to somebody else; nothing was changed there
-- Atomic because: the look at the owner and the change belong together.

-- @include clock
-- @include queue
-- @include order
-- @include side_calls
-- @include end

local lane, number, late_errors, max_retries = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local retain_ms, retain_count, first_result, stride = tonumber(ARGV[5]), tonumber(ARGV[6]), 7, 4

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then return cjson.decode(earlier) end

local function settle(record, result)
  if result == 'ok' then
    finish(record, 'processed', '-')
  elseif record.status == 'failed' then
    return -- at its deadline; the error changes nothing
  elseif late_errors == 'fail' and has_passed(record) then
    finish(record, 'failed', 'error')
  elseif has_tries_left(record, max_retries) then
    queue_again(record)
  else
    finish(record, 'failed', 'retries')
  end
end

-- Failed at its deadline while it ran: nobody else had it, so a success still counts.
local function is_open(record)
  return record.status == 'consumed' or record.status == 'failed' and record.reason == 'deadline'
end

local lost = {}
for at = first_result, #ARGV, stride do
  local id, consumer, claim, result = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local record = read_record(id)
  if not record or record.consumer ~= consumer or record.claim ~= claim then
    lost[#lost + 1] = id
  elseif is_open(record) then
    settle(record, result)
  elseif result == 'ok' and record.status ~= 'processed' then
    lost[#lost + 1] = id -- given up meanwhile; anything else was written before, by a call whose answer was lost
  end
end
purge_done(retain_ms, retain_count)
remember_reply(lane, number, #lost == 0 and '[]' or cjson.encode(lost))
return lost
