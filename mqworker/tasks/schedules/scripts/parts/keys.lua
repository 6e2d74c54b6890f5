-- keys: the keys of schedules, and how one is stored. Mirrors ScheduleKeys in tasks/schedules/keys.py.
-- Needs: clock.

local specs, names, due, marks = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local history, owned, forget, schedules_meta = KEYS[5], KEYS[6], KEYS[7], KEYS[8]

local NEVER_MS = 253402300799999 -- LATEST_MS of model/instant.py: paused, or without another tick
local FORGET_AFTER_MS = 120000 -- as in calls.py: twice as long as a broker may take from a look to a firing

-- Foreign types show themselves before the first write.
local function look_at_types()
  redis.call('HLEN', specs)
  redis.call('ZCARD', names)
  redis.call('ZCARD', due)
  redis.call('HLEN', marks)
  redis.call('HLEN', history)
  redis.call('HLEN', owned)
  redis.call('ZCARD', forget)
  redis.call('HLEN', schedules_meta)
end

-- '<revision> <owner> <since ms> <times> <queue> <JSON>'; nothing for what another program wrote.
local function parts_of(text)
  return string.match(text or '', '^(%d+) ([^ ]+) (%d+) ([^ ]+) ([^ ]+) (.*)$')
end

-- A schedule is looked at as soon as anything about it has changed; what a broker worked out before is void then.
local function next_revision(name, at_ms)
  local revision = redis.call('HINCRBY', schedules_meta, 'revision', 1)
  redis.call('ZADD', due, digits(at_ms), name)
  return digits(revision)
end

-- Where it came at the same times in the same queue, it goes on from where it was; else it begins now.
local function store_schedule(name, owner, times, queue, json)
  local _, known_owner, since, known_times, known_queue, known_json = parts_of(redis.call('HGET', specs, name))
  if known_owner == owner and known_times == times and known_queue == queue and known_json == json then return end
  if known_times ~= times or known_queue ~= queue then since = digits(now_ms) end
  local revision = next_revision(name, 0)
  if known_queue and known_queue ~= queue then
    redis.call('ZADD', forget, digits(now_ms + FORGET_AFTER_MS), known_queue .. ' ' .. name)
  end
  redis.call('ZREM', forget, queue .. ' ' .. name)
  redis.call('ZADD', names, 0, name)
  local text = { revision, owner, since, times, queue, json }
  redis.call('HSET', specs, name, table.concat(text, ' '))
end

-- The tick that is noted in its queue is forgotten later: a broker that was stopped might still fire it.
local function remove_schedule(name)
  local _, _, _, _, queue = parts_of(redis.call('HGET', specs, name))
  redis.call('HDEL', specs, name)
  redis.call('ZREM', names, name)
  redis.call('ZREM', due, name)
  redis.call('HDEL', marks, name)
  redis.call('HDEL', history, name)
  if queue then redis.call('ZADD', forget, digits(now_ms + FORGET_AFTER_MS), queue .. ' ' .. name) end
end
