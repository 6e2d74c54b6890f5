-- functions: the verbs of the RedisMQ document as functions of the server, for clients that can only FCALL.
-- Each runs the very script that mqworker sends (run_push and the others), on the keys of the queue it is given.
-- Needs: namespace, kept, window_ms, key_patterns, run_push, run_pop, run_ack, run_recover, run_inspect.

local function keys_of(name)
  -- As the name stands in keys: with escapes like %20 (model/names.py), which mean something else to gsub.
  if not string.match(name, '^[%w_%%][%w_.:%%-]*$') or #name > 128 then return nil end
  local keys, literal = {}, string.gsub(name, '%%', '%%%%')
  for i, pattern in ipairs(key_patterns) do keys[i] = string.gsub(pattern, '%%s', literal) end
  return keys
end

-- Nobody repeats an FCALL, so it has no lane and no number.
local NO_LANE, NO_NUMBER = '', ''

local function whole(text)
  return string.match(text or '', '^-?%d+$') and tonumber(text)
end

local function with_queue(least, usage, verb)
  return function(keys, args)
    local queue_keys = keys_of(keys[1] or '')
    if not queue_keys then return redis.error_reply('ERR FCALL takes one key, the name of a queue') end
    if #args < least then return redis.error_reply('ERR usage: ' .. usage) end
    return verb(queue_keys, args, keys[1]) or redis.error_reply('ERR usage: ' .. usage)
  end
end

-- false becomes nil on the wire, and so cannot be told from a usage error: the scripts' false is wrapped.
local NOTHING = { map = nil }
local function reply_of(reply)
  return reply == false and NOTHING or reply
end

local function push(keys, args, name)
  local reply = run_push(keys, values_from(args, 1, { NO_LANE, NO_NUMBER, kept }))
  if not reply.err then redis.pcall('SADD', namespace .. ':queues', name) end -- in a cluster it lies elsewhere
  return reply
end

local function pop(keys, args)
  local count, reply = whole(args[1]), -1
  if not count then return nil end
  if count < 1 then return redis.error_reply('ERR count must be >= 1') end
  for _ = 1, 100 do -- -1: much was passed over, more may be behind
    reply = run_pop(keys, { NO_LANE, NO_NUMBER, kept, math.min(count, 1000), window_ms })
    if reply ~= -1 then return reply_of(reply) end
  end
  return {}
end

local function ack(keys, args)
  return reply_of(run_ack(keys, values_from(args, 1, { NO_LANE, NO_NUMBER, kept, window_ms })))
end

local function recover(keys, args)
  local count, elapsed_ms = whole(args[1]), whole(args[2])
  if not count or not elapsed_ms then return nil end
  count, elapsed_ms = math.max(0, math.min(count, 1000)), math.max(0, elapsed_ms)
  return reply_of(run_recover(keys, { NO_LANE, NO_NUMBER, count, elapsed_ms }))
end

local function inspect(keys, args)
  local is_pending = string.upper(args[1]) == 'PENDING'
  local start, count = whole(args[is_pending and 2 or 1]), whole(args[is_pending and 3 or 2])
  if not start or not count or count < 1 then return nil end
  return run_inspect(keys, { is_pending and 'pending' or 'undelivered', start, math.min(count, 10000) })
end

local function unwrapped(callback)
  return function(keys, args)
    local reply = callback(keys, args)
    if reply == NOTHING then return false end
    return reply
  end
end

local function register(name, flags, least, usage, verb)
  redis.register_function({
    function_name = name, flags = flags, callback = unwrapped(with_queue(least, usage, verb)),
  })
end

register('mq_push', {}, 1, 'FCALL mq_push 1 key element [element ...]', push)
register('mq_pop', { 'allow-oom' }, 1, 'FCALL mq_pop 1 key count', pop)
register('mq_ack', { 'allow-oom' }, 1, 'FCALL mq_ack 1 key id [id ...]', ack)
register('mq_recover', { 'allow-oom' }, 2, 'FCALL mq_recover 1 key count elapsed', recover)
register('mq_inspect', { 'no-writes', 'allow-oom' }, 2, 'FCALL mq_inspect 1 key [PENDING] start count', inspect)
