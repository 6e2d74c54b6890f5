-- queue: the keys of one Celery queue. The lists are Celery's: whatever stands there goes in and out as it is.
--
-- Mirrors CeleryKeys in queues/celery/keys.py. A message that was taken from its list has an entry, a number; what is
-- known of it stands before it: 'list deliveries failures crashes taken-at ', list being its position among the lists.
-- Needs: clock.

local calls, messages, held, leases, waiting = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local dead, letters, buried, FIRST_LIST = KEYS[6], KEYS[7], KEYS[8], 9

-- Foreign types show themselves before the first write.
local function check_types(list_count)
  redis.call('HLEN', messages)
  redis.call('HLEN', held)
  redis.call('ZCARD', leases)
  redis.call('ZCARD', waiting)
  redis.call('HLEN', dead)
  redis.call('HLEN', letters)
  redis.call('ZCARD', buried)
  for at = FIRST_LIST, FIRST_LIST + list_count - 1 do redis.call('LLEN', KEYS[at]) end
end

local function head_of(list, deliveries, failures, crashes, taken_at_ms)
  local format = '%d %d %d %d %.0f '
  return string.format(format, list, deliveries, failures, crashes, taken_at_ms)
end

-- The list, the counts and the message of an entry; nil for none, and for what is none of ours.
local function opened(entry)
  local stored = entry and redis.call('HGET', messages, entry)
  if not stored then return nil end
  local list, deliveries, failures, crashes, taken_at_ms, message =
    string.match(stored, '^(%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
  if not list then return nil end
  return {
    list = tonumber(list),
    deliveries = tonumber(deliveries),
    failures = tonumber(failures),
    crashes = tonumber(crashes),
    taken_at_ms = tonumber(taken_at_ms),
    message = message,
  }
end

-- The entry of a delivery that is still held; a lapsed one is not, even if nobody else has it yet.
local function held_entry(fence)
  local ends_at_ms = tonumber(redis.call('ZSCORE', leases, fence) or nil)
  if not ends_at_ms or ends_at_ms <= now_ms then return nil end
  return redis.call('HGET', held, fence) or nil
end

local function let_go(fence)
  redis.call('HDEL', held, fence)
  redis.call('ZREM', leases, fence)
end

-- Among those that wait, with its counts. What is due at once gets the time when it was taken: that is its old place.
local function wait_until(entry, found, due_ms)
  local head = head_of(found.list, found.deliveries, found.failures, found.crashes, found.taken_at_ms)
  redis.call('HSET', messages, entry, head .. found.message)
  redis.call('ZADD', waiting, digits(due_ms > now_ms and due_ms or found.taken_at_ms), entry)
end

-- Back to where Celery takes from, as it came. The list may be gone from the settings meanwhile.
local function put_back(entry, found, list_count)
  local list = KEYS[FIRST_LIST + math.min(found.list, list_count) - 1]
  redis.call('RPUSH', list, found.message)
  redis.call('HDEL', messages, entry)
end
