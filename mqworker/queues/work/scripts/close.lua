#!lua flags=allow-oom
-- close: keep calls with some names among their limits from starting until an instant, or open them again.
--
-- KEYS     as in parts/keys.lua
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/calls.lua
-- ARGV[3]  events kept in the stream, about; ARGV[4] task, for the event; ARGV[5] ms from now, 0 to open
-- ARGV[6]  why; ARGV[7..] names
-- Returns  how many were closed; one that is closed for longer stays so. Of opening: how many were closed
-- Numbered because: a copy that comes late would close what was opened meanwhile.

-- @include slices
-- @include keys
-- @include clock
-- @include order
-- @include calls
-- @include slots
-- @include closing
-- @include report

local lane, number, kept, task = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local for_ms, why, first_name = tonumber(ARGV[5]), ARGV[6], 7

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then return same_answer(earlier) end
redis.call('XLEN', events)
redis.call('ZCARD', all_limits)
redis.call('HGET', meta, 'fence')

local told = {}
for i = first_name, #ARGV do
  local name, until_ms = ARGV[i], now_ms + for_ms
  local known_ms, is_half = closed_until_ms(name)
  if for_ms > 0 and known_ms < until_ms then
    close_name(name, until_ms, is_half and HALF)
    told[#told + 1] = { event = 'closed', task = task, error_msg = name .. ': ' .. why }
  elseif for_ms == 0 and known_ms > 0 then
    open_name(name)
    told[#told + 1] = { event = 'opened', task = task, error_msg = name .. ': ' .. why }
  end
end
write_counts_and_turns()
append_events(kept, told)
if for_ms == 0 then redis.call('SPUBLISH', meta, 'limited') end
remember_reply(lane, number, cjson.encode({ #told }))
return #told
