-- record: the text header before every body. Mirrors model/record.py, which documents the layout.
--
--   1-13 enqueued at, ms | 14 priority | 15 guard mode, a capital for a parent, P without a guard | 16 'd' with a deadline, 'l' with
--   limits, 'b' with both; D, L, B, k (of '-') with a batch key, too | 17 max crashes, base 36
--   18-20 deliveries | 21-23 failures | 24 losses, A to Z on probation | 25 crashes, or S for a suspect, A to M in smaller batches
--   26- id, task, [guard], [deadline], [limits], [batch key], each with a space; body
--   A permit stands before the limits, with a ';' behind it: 'admitted at ms+valid for ms' in the ready line, 'valid for
--   ms' since it was claimed. Behind the limits, after a '&', stands what it costs of rates by weight, if any, with commas.

local HOLE = '-' -- what cancel leaves in the ready list: removing from the middle would cost O(n)

local HEADER = '^' .. string.rep('%d', 14) .. '[irwtlmnIRWTLNP%-][dlbkDLB%-][%w%-]' .. string.rep('%d', 6) .. '[%da-pA-Z][%da-zA-MS]'
local ID_AND_TASK = '^[%w_.:@/+=~%-]+ [%w_.%-]+ '

-- A deadline of more digits is not an instant, and no number that Lua or Python could count with.
local DEADLINE = '%d' .. string.rep('%d?', 14) .. ' '

-- Whether the bytes are a record in every field that scripts rely on; model/record.py asks for the same.
local function is_record(text)
  if not string.match(text, HEADER) then return false end
  local fields = ID_AND_TASK
  if string.sub(text, 15, 15) ~= '-' then fields = fields .. '[!-~]+ ' end
  local extras = string.sub(text, 16, 16)
  if string.find('dbDB', extras, 1, true) then fields = fields .. DEADLINE end
  if string.find('lbLB', extras, 1, true) then fields = fields .. '[!-~]+ ' end
  if string.find('kDLB', extras, 1, true) then fields = fields .. '[!-~]+ ' end
  return string.match(text, fields, 26) ~= nil
end

local function id_and_task(record)
  return string.match(record, '^([^ ]+) ([^ ]+) ', 26)
end

-- The id alone: a plain search is quicker than a pattern, and this runs for each result that is kept.
local function id_of(record)
  return string.sub(record, 26, (string.find(record, ' ', 26, true) or 26) - 1)
end

-- Asked of each message that ends, and so without a pattern. Whether it has spawned other messages: its end is noted for
-- its tree (begin_spawn.lua).
local function is_parent(record)
  local mode = string.byte(record, 15)
  return mode ~= nil and mode >= 65 and mode <= 90
end

local function guard_mode(record)
  local mode = string.sub(record, 15, 15)
  return is_parent(record) and string.lower(mode) or mode
end

local function as_parent(record, id)
  local mode = string.sub(record, 15, 15)
  if mode ~= '-' then return string.sub(record, 1, 14) .. string.upper(mode) .. string.sub(record, 16) end
  local _, last = string.find(record, '^[^ ]+ [^ ]+ ', 26)
  return string.sub(record, 1, 14) .. 'P' .. string.sub(record, 16, last) .. 'tree:' .. id .. ' ' .. string.sub(record, last + 1)
end

-- The guard's key, where guard_mode is not '-'.
local function guard_of(record)
  return string.match(record, '^[^ ]+ [^ ]+ ([^ ]+) ', 26)
end

local function has_deadline(record)
  local extras = string.sub(record, 16, 16)
  return extras == 'd' or extras == 'b' or extras == 'D' or extras == 'B'
end

local BATCH_KEY_MARKS = { [107] = true, [68] = true, [76] = true, [66] = true } -- k D L B
local function has_batch_key(record)
  return BATCH_KEY_MARKS[string.byte(record, 16)] or false
end

local function is_limited(record)
  local extras = string.sub(record, 16, 16)
  return extras == 'l' or extras == 'b' or extras == 'L' or extras == 'B'
end

local function deadline_of(record)
  if guard_mode(record) == '-' then
    return tonumber(string.match(record, '^[^ ]+ [^ ]+ (%d+) ', 26))
  end
  return tonumber(string.match(record, '^[^ ]+ [^ ]+ [^ ]+ (%d+) ', 26))
end

-- Its limits, where is_limited; its permit, if it has one; where the field begins and ends; '&' and its costs, or ''.
local function limits_field(record)
  local pattern = '^[^ ]+ [^ ]+ '
  if guard_mode(record) ~= '-' then pattern = pattern .. '[^ ]+ ' end
  if has_deadline(record) then pattern = pattern .. '%d+ ' end
  local _, before = string.find(record, pattern, 26)
  local last = string.find(record, ' ', before + 1, true) - 1
  local _, permit_last, permit = string.find(record, '^([%d+]+);', before + 1)
  local limits, costs = string.match(string.sub(record, (permit_last or before) + 1, last), '^([^&]*)(.*)$')
  return limits, permit, before, last, costs
end

local function limits_of(record)
  return (limits_field(record))
end

-- The record with another permit, '' for none.
local function with_permit(record, permit)
  local limits, old_permit, before, last, costs = limits_field(record)
  if permit == (old_permit or '') then return record end
  return string.sub(record, 1, before) .. (permit == '' and '' or permit .. ';') .. limits .. costs .. string.sub(record, last + 1)
end

-- Whether its deadline has passed: such a message is neither delivered nor cancelled any more.
local function is_over(record, now_ms)
  return has_deadline(record) and (deadline_of(record) or 0) <= now_ms
end

local MOST_LOSSES, MOST_CRASHES = 25, 35
local DIGITS = '0123456789abcdefghijklmnopqrstuvwxyz'

local function digit(count, most)
  count = math.min(count, most)
  return string.sub(DIGITS, count + 1, count + 1)
end

-- Whether the mark of crashes is a suspicion: S, or A to M for one that runs in batches.
local function is_suspicion(mark)
  return string.find(mark, '^%u$') ~= nil
end

-- Deliveries, failures and crashes.
local function counts(record)
  local crashes = string.sub(record, 25, 25)
  return tonumber(string.sub(record, 18, 20)),
    tonumber(string.sub(record, 21, 23)),
    is_suspicion(crashes) and 0 or tonumber(crashes, 36)
end

local function is_on_probation(record)
  return string.match(record, '^%u', 24) ~= nil
end

local function losses_of(record)
  if is_on_probation(record) then return string.byte(record, 24) - 65 end
  return tonumber(string.sub(record, 24, 24), 36)
end

-- The record of a delivery that is given up if its consumer vanishes once more.
local function on_probation(record)
  return string.sub(record, 1, 23) .. string.char(65 + losses_of(record)) .. string.sub(record, 25)
end

-- The record after one more delivery: so many more failures; more crashes as a number, or the mark of a suspicion when it
-- ran beside others; so many more losses. What fails has ended: suspicion and losses are forgotten. What crashed runs alone.
local function delivered_again(record, more_failures, more_crashes, more_losses)
  local deliveries, failures, crashes = counts(record)
  local has_failed = more_failures > 0
  local losses = has_failed and 0 or losses_of(record) + (more_losses or 0)
  local mark = digit(crashes + (tonumber(more_crashes) or 0), MOST_CRASHES)
  local old_mark = string.sub(record, 25, 25)
  if mark == '0' and is_suspicion(more_crashes or '0') then
    mark = more_crashes
  elseif mark == '0' and is_suspicion(old_mark) and not has_failed then
    mark = old_mark
  end
  return string.sub(record, 1, 17)
    .. string.format('%03d%03d', math.min(deliveries + 1, 999), math.min(failures + more_failures, 999))
    .. digit(losses, MOST_LOSSES)
    .. mark
    .. string.sub(record, 26)
end

local function body_of(record)
  local pattern = '^[^ ]+ [^ ]+ '
  if guard_mode(record) ~= '-' then pattern = pattern .. '[^ ]+ ' end
  if has_deadline(record) then pattern = pattern .. '%d+ ' end
  if is_limited(record) then pattern = pattern .. '[^ ]+ ' end
  if has_batch_key(record) then pattern = pattern .. '[^ ]+ ' end
  local _, last = string.find(record, pattern, 26)
  return string.sub(record, (last or 0) + 1)
end
