#!lua flags=allow-oom
-- advance_schedules: say when schedules are to be looked at next, and what was fired of them.
--
-- KEYS     as in parts/keys.lua
-- ARGV[1]  how many pairs follow: '<queue> <name>', score; ticks that were forgotten
-- ARGV[..] of each schedule, five arguments: name, the revision that was read, next look in ms since 1970 ('' for no change),
--          mark ('' for no change), firings to be noted: '<kind>:<tick>:<at>:<count>' with a space between them
-- Returns  how many were advanced; one that was changed since it was read is not
-- Atomic because: what was worked out from an old version would hide the new one's next tick.
-- Repeatable: the same words again change nothing; firings are known by their ticks.

-- @include clock
-- @include keys

local forgotten_pairs = tonumber(ARGV[1])
local first_schedule = 2 + 2 * forgotten_pairs
local KEPT_FIRINGS = 20
local CLASS = { F = 'tick', K = 'tick', N = 'tick' } -- fired, kept out, noted by a broker that could not say more

local function firing_of(text)
  local kind, tick = string.match(text, '^(%a):(%d+):%d+:%d+$')
  if kind then return { kind = kind, class = CLASS[kind] or kind, tick = tonumber(tick), text = text } end
end

-- A tick stands there once: who fired it knows more than who only found that it was fired.
local function add_firing(kept, new)
  for i, old in ipairs(kept) do
    if old.class == new.class and old.tick == new.tick then
      if old.kind == 'N' then kept[i] = new end
      return
    end
    if new.kind == 'N' and old.class == 'tick' and old.tick > new.tick then return end
  end
  kept[#kept + 1] = new
end

local function note_firings(name, text)
  local kept = {}
  for each in string.gmatch(redis.call('HGET', history, name) or '', '[^ ]+') do kept[#kept + 1] = firing_of(each) end
  for each in string.gmatch(text, '[^ ]+') do
    local new = firing_of(each)
    if new then add_firing(kept, new) end
  end
  local texts = {}
  for i = math.max(1, #kept - KEPT_FIRINGS + 1), #kept do texts[#texts + 1] = kept[i].text end
  redis.call('HSET', history, name, table.concat(texts, ' '))
end

look_at_types()
for at = 2, first_schedule - 1, 2 do
  local member, score = ARGV[at], ARGV[at + 1]
  -- Unless it was deleted once more since: then it is to be forgotten once more.
  if tonumber(redis.call('ZSCORE', forget, member) or -1) == tonumber(score) then redis.call('ZREM', forget, member) end
end
local advanced = 0
for at = first_schedule, #ARGV, 5 do
  local name, revision, next_ms, mark, firings = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
  local text = redis.call('HGET', specs, name)
  if text and firings ~= '' then note_firings(name, firings) end
  if text and next_ms ~= '' and parts_of(text) == revision then
    redis.call('ZADD', due, next_ms, name)
    if mark ~= '' then redis.call('HSET', marks, name, mark) end
    advanced = advanced + 1
  end
end
return advanced
