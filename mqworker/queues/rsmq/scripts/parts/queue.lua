-- queue: the keys of one RSMQ queue, and what its hash says about it.
--
-- Mirrors RsmqKeys in queues/rsmq/keys.py. `messages` and `line` are the documented keys: foreign clients read and
-- write them, so whatever stands there is looked at before the first write, and nothing of ours goes in.
-- Needs: clock.

local calls, messages, line = KEYS[1], KEYS[2], KEYS[3]

-- Only plain decimals: tonumber alone would also take '0x1f', 'nan' and '1e9'.
local function decimal(text)
  return text and string.find(text, '^%-?%d+%.?%d*$') and tonumber(text) or nil
end

-- What applies to the queue, times in ms; nil where there is no queue, or only half of one.
local function queue_settings()
  local fields = redis.call('HMGET', messages, 'vt', 'delay', 'maxsize', 'totalsent', 'totalrecv')
  local vt, delay, maxsize = decimal(fields[1]), decimal(fields[2]), decimal(fields[3])
  if not (vt and delay and maxsize) then return nil end
  return {
    vt_ms = math.floor(vt * 1000 + 0.5), -- one client stores fractions of a second
    delay_ms = math.floor(delay * 1000 + 0.5),
    maxsize = maxsize,
    total_sent = decimal(fields[4]) or 0,
    total_received = decimal(fields[5]) or 0,
  }
end
