-- slots: how many messages of a limit run at once (max_running, 'name<=most' among the limits; decision 35).
-- A message occupies a slot of each such limit from its admission until its delivery has ended or it waits again. Every
-- script that takes a record out of the ready line, or out of what is held, calls free_slots: so the slot is back in the
-- same step, whoever ended it. `slots` has one entry for each message that occupies any; the counts are its sum, and
-- repair.lua compares them with what is held.
-- A limit whose name begins with '$' is shared by queues: it is counted in keys of its own, which no cluster keeps in the
-- slot of a queue; producers refuse it there. The part of each queue is noted beside the sum, for repair.lua.
-- A circuit breaker (parts/closing.lua) counts what runs as well, as 'name!': it matters while the key is half open.
-- Needs: slices, keys, clock.

local queue_prefix = string.sub(meta, 1, -5)
-- hash: id -> '<where> <limits>'; where is '+<ms>', admitted with a permit until then, or '<fence>@<consumer>', or 'popped'
local slots = queue_prefix .. 'slots'
local BLOCKED_MS = 8e15 -- the turn of limits that wait for a slot: it comes when one is free
local POPPED = 'popped'

-- The prefix of the keys in which a limit is counted.
local function home_of(name)
  if string.byte(name) ~= 36 then return queue_prefix end -- '$'
  return string.match(meta, '^(.*):%b{}:meta$') .. ':{limit:' .. string.match(name, '^%$([^:!]+)') .. '}:'
end

-- A text of limits in its parts (parts/admission.lua), read once in a call: `names` of all that may be closed; `counted`,
-- name and most after one another, '' for most where only a breaker asks; `breakers`, `buckets`; `weight` of a tenant.
local parts_by_limits = {}
local function parts_of(limits)
  local parts = parts_by_limits[limits]
  if parts then return parts end
  parts = { names = {}, counted = {}, breakers = {}, buckets = {}, weight = math.huge }
  parts_by_limits[limits] = parts
  for part in string.gmatch(limits, '[^|]+') do
    local name, sign, rest = string.match(part, '^([^=<!]+)([=<!]+)(.*)$')
    if sign == '<=' then
      parts.counted[#parts.counted + 1] = name
      parts.counted[#parts.counted + 1] = rest
    elseif sign == '!' then
      local most, within_ms, closed_for_ms = string.match(rest, '^(%d+)/(%d+)/(%d+)$')
      parts.counted[#parts.counted + 1] = name .. '!'
      parts.counted[#parts.counted + 1] = ''
      parts.breakers[#parts.breakers + 1] = { name, tonumber(most), tonumber(within_ms), tonumber(closed_for_ms) }
    elseif sign == '=' and string.find(rest, '~', 1, true) then
      parts.weight, name = tonumber(string.match(rest, '^(%d+)~') or math.huge), nil
    elseif sign == '=' then
      local count, period_ms, burst, mark = string.match(rest, '^(%d+)/(%d+)/(%d+)(%*?)$')
      if count then
        parts.buckets[#parts.buckets + 1] = {
          name = name, step_ms = tonumber(period_ms) / tonumber(count), burst = tonumber(burst), is_weighted = mark == '*',
        }
      end
    end
    if name then parts.names[#parts.names + 1] = name end
  end
  parts.needs_permit = #parts.counted + #parts.buckets > 0
  return parts
end

-- How many occupy a slot of each limit: read once, written by write_counts. Those of shared limits at once.
local count_by_name, changed_counts = {}, {}
local function running(name)
  local count = count_by_name[name]
  if count then return count end
  count = tonumber(redis.call('HGET', home_of(name) .. 'running', name) or 0)
  count_by_name[name] = count
  return count
end

local function count_more(name, more)
  local home = home_of(name)
  if home == queue_prefix then
    count_by_name[name] = running(name) + more
    changed_counts[name] = true
    return count_by_name[name]
  end
  for _, field in ipairs({ name, name .. ' ' .. queue_prefix }) do
    if redis.call('HINCRBY', home .. 'running', field, more) == 0 then redis.call('HDEL', home .. 'running', field) end
  end
  count_by_name[name] = nil
  return running(name)
end

-- Limits that were woken, in the order of their turns: {turn, limits}. Those that are not visited are noted by write_turns.
local woken_turns = {}

local function add_turn(turn, limits)
  local at = #woken_turns + 1
  while at > 1 and woken_turns[at - 1][1] > turn do at = at - 1 end
  table.insert(woken_turns, at, { turn, limits })
end

-- So many of the limits that wait for a slot of this one have their turn, those that wait longest first.
local function wake_blocked(name, count)
  local blocked, woken = home_of(name) .. 'blocked:' .. name, 0 -- list: 'turn limits prefix of the queue'
  while woken < count do
    local entry = redis.call('LPOP', blocked)
    if not entry then break end
    local turn, limits, prefix = string.match(entry, '^(%S+) (%S+) (%S+)$')
    if prefix == queue_prefix then
      add_turn(turn, limits)
    elseif prefix then
      redis.call('ZADD', prefix .. 'limits', turn, limits)
      redis.call('SPUBLISH', prefix .. 'meta', 'limited')
    end
    woken = woken + 1
  end
  return woken
end

-- Must follow whatever counts or wakes.
local function write_counts_and_turns()
  local counts, gone = {}, {}
  for name in pairs(changed_counts) do
    if count_by_name[name] == 0 then
      gone[#gone + 1] = name
    else
      counts[#counts + 1] = name
      counts[#counts + 1] = count_by_name[name]
    end
  end
  call_many('HSET', queue_prefix .. 'running', counts)
  call_many('HDEL', queue_prefix .. 'running', gone)
  changed_counts = {}
  for _, turn in ipairs(woken_turns) do redis.call('ZADD', all_limits, turn[1], turn[2]) end
  woken_turns = {}
end

-- These end, or wait again; `each` is told the position and the limits of those who occupied a slot. Returns how many did.
-- write_counts_and_turns must follow.
local function free_slots(ids, each)
  if #ids == 0 or redis.call('HLEN', slots) == 0 then return 0 end
  local freed, fewer_by_name, seen = {}, {}, {}
  for i, slot in ipairs(read_many('HMGET', slots, ids)) do
    if slot and not seen[ids[i]] then
      seen[ids[i]] = true
      freed[#freed + 1] = ids[i]
      local limits = string.sub(slot, (string.find(slot, ' ', 1, true) or #slot) + 1)
      local counted = parts_of(limits).counted
      for at = 1, #counted, 2 do fewer_by_name[counted[at]] = (fewer_by_name[counted[at]] or 0) + 1 end
      if each then each(i, limits) end
    end
  end
  call_many('HDEL', slots, freed)
  local names = {}
  for name in pairs(fewer_by_name) do
    if string.byte(name) ~= 36 and not count_by_name[name] then names[#names + 1] = name end
  end
  for i, count in ipairs(read_many('HMGET', queue_prefix .. 'running', names)) do
    count_by_name[names[i]] = tonumber(count or 0)
  end
  for name, fewer in pairs(fewer_by_name) do
    count_more(name, -fewer)
    wake_blocked(name, fewer)
  end
  return #freed
end

-- The same for scripts that let nobody in themselves: whoever does is called.
local function free_slots_and_call(ids)
  if free_slots(ids) == 0 then return end
  local has_woken = #woken_turns > 0
  write_counts_and_turns()
  if has_woken then redis.call('SPUBLISH', meta, 'limited') end
end

-- Notes where messages are that occupy slots: id, 'where limits', id, ...
local function occupy(entries)
  call_many('HSET', slots, entries)
end
