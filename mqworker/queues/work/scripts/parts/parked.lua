-- parked: messages that somebody could not run: their task is unknown there, or the call does not fit that version of
-- it. They are delayed messages, so that cancel, expire, find, purge and promote treat them like any delayed one. The
-- index is for dispatchers that may be able to run them: they claim them by the task, at once.
-- Its key is in the queue's slot, made from the name of a declared one (decision 9).
-- Needs: keys, clock, record, place.

-- zset, every score 0: '<task> <mark> <due at ms> <parked at ms> <id>', so that a range of it is one task. The mark is '-' where the
-- task is unknown, or tells which version of it refused the call. An entry means something only while its message is
-- delayed until that very instant: whoever moves the message on need not know of it, and repair.lua drops it.
local parked = string.sub(meta, 1, -5) .. 'parked'
local UNKNOWN = '-'
local MOST_REFUSALS = 8 -- two versions that both refuse a call must not pass it to and fro for ever
local NOT_TO_BE_CLAIMED = '!' -- no task is called so: it is shown, and waits for its instant

local function park(id, task, mark, record, due_ms)
  local is_refused_by_all = mark ~= UNKNOWN and (counts(record)) >= MOST_REFUSALS
  place_delayed(id, record, due_ms)
  local name = is_refused_by_all and NOT_TO_BE_CLAIMED .. task or task
  redis.call('ZADD', parked, 0, table.concat({ name, mark, digits(due_ms), digits(now_ms), id }, ' '))
  if not is_refused_by_all then redis.call('SPUBLISH', meta, 'parked ' .. task) end
end

-- Of an entry whose message is still parked: its id, its task, the mark, and since when.
local function parked_message(entry)
  local task, mark, due, since, id = string.match(entry, '^!?(%S+) (%S+) (%d+) (%d+) (%S+)$')
  if not id or tonumber(redis.call('ZSCORE', delayed, id) or -1) ~= tonumber(due) then return nil end
  return id, task, mark, tonumber(since)
end
