-- keys: the keys of a topic that tasks subscribe to. Mirrors EventKeys in tasks/events/keys.py.
-- Needs: clock.

local subscribers, outbox, backlog = KEYS[1], KEYS[2], KEYS[3]

-- Foreign types show themselves before the first write.
local function look_at_types()
  redis.call('HLEN', subscribers)
  redis.call('HLEN', outbox)
  redis.call('LLEN', backlog)
end

-- Notes that these subscribers are to get the event; the caller, or else a broker, sees to it.
local function hand_out(event, payload, names)
  redis.call('HSET', outbox, event, digits(now_ms) .. ' ' .. table.concat(names, ',') .. '\n' .. payload)
end
