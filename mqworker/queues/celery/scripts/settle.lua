#!lua flags=allow-oom
-- settle: end deliveries that are still held, and write with each what Celery is to find: results, next messages.
--
-- KEYS     as in parts/queue.lua, then the keys of results and the lists that are written to
-- ARGV[1]  lane, ARGV[2] number: the call, see parts/side_calls.lua
-- ARGV[3]  how many lists; ARGV[4] ms for which results are kept, 0 for ever; ARGV[5] database of results, '' for this
-- ARGV[6..] of each: verdict, fence, three more, how many writes, and three for each write: 'result' or 'push', which
--          key (counted from the first behind the lists), text. Verdicts and what they use of the three:
--          'ack'; 'again' due (it failed); 'wait' due (uncounted); 'back' due (to its list, or waits where it was tried
--          before); 'crash'; 'bury' id, letter
-- Returns  {position from 0, ...}: deliveries that were not settled, because their lease was lost
-- Atomic because: who waits for a result, or is next in a chain, must hear of it exactly if the message is done.

-- @include slices
-- @include clock
-- @include queue
-- @include order
-- @include side_calls

local lane, number, list_count = ARGV[1], ARGV[2], tonumber(ARGV[3])
local kept_ms, database, first_settlement = tonumber(ARGV[4]), ARGV[5], 6
local FIRST_WRITTEN = FIRST_LIST + list_count
local SUCCEEDED = '{"status": "SUCCESS"'

local earlier, is_late = earlier_reply(lane, number)
if is_late then return is_late end
if earlier then return cjson.decode(earlier) end
check_types(list_count)

local settlements, at = {}, first_settlement
while at <= #ARGV do
  local each = { verdict = ARGV[at], fence = ARGV[at + 1], due = ARGV[at + 2], id = ARGV[at + 3], letter = ARGV[at + 4] }
  each.writes, at = tonumber(ARGV[at + 5]), at + 6
  each.first_write, at = at, at + 3 * each.writes
  settlements[#settlements + 1] = each
end

local results = {} -- {key, text}, written last: they may lie in another database
-- Foreign types in the place of a list that is pushed to show themselves before the first write, too.
for _, each in ipairs(settlements) do
  for write = each.first_write, each.first_write + 3 * each.writes - 1, 3 do
    if ARGV[write] == 'push' then redis.call('LLEN', KEYS[FIRST_WRITTEN + tonumber(ARGV[write + 1])]) end
  end
end

local function carry_out(each)
  for write = each.first_write, each.first_write + 3 * each.writes - 1, 3 do
    local key, text = KEYS[FIRST_WRITTEN + tonumber(ARGV[write + 1])], ARGV[write + 2]
    if ARGV[write] == 'push' then redis.call('LPUSH', key, text) else results[#results + 1] = { key, text } end
  end
end

-- Two dead letters may have one id: Celery gives each retry of a task the same.
local function free_id(id, entry)
  return redis.call('HEXISTS', dead, id) == 1 and id .. '~' .. entry or id
end

local function bury(entry, found, each)
  local id = free_id(each.id, entry)
  local head = head_of(found.list, found.deliveries, found.failures, found.crashes, found.taken_at_ms)
  redis.call('HSET', dead, id, head .. found.message)
  redis.call('HSET', letters, id, each.letter)
  redis.call('ZADD', buried, digits(now_ms), id)
  redis.call('HDEL', messages, entry)
end

local lost, returned = {}, {}
for position, each in ipairs(settlements) do
  local entry = held_entry(each.fence)
  local found = opened(entry)
  if not found then
    lost[#lost + 1] = position - 1
  else
    if each.verdict == 'ack' then
      redis.call('HDEL', messages, entry)
    elseif each.verdict == 'bury' then
      bury(entry, found, each)
    elseif each.verdict == 'back' and found.deliveries == 0 then
      returned[#returned + 1] = { entry, found }
    else
      if each.verdict == 'again' or each.verdict == 'crash' then found.deliveries = found.deliveries + 1 end
      if each.verdict == 'again' then found.failures = found.failures + 1 end
      if each.verdict == 'crash' then found.crashes = found.crashes + 1 end
      wait_until(entry, found, instant_ms(each.due))
    end
    carry_out(each)
    let_go(each.fence) -- a lapsed one is let go by reclaim.lua, which needs it to find the message
  end
end
-- The last one first: so the first one is taken first again.
for i = #returned, 1, -1 do put_back(returned[i][1], returned[i][2], list_count) end
remember_reply(lane, number, #lost == 0 and '[]' or cjson.encode(lost))

if #results > 0 and database ~= '' then redis.call('SELECT', database) end
for _, each in ipairs(results) do
  local key, text = each[1], each[2]
  local known = redis.pcall('GET', key)
  local is_free = type(known) ~= 'table' -- else another program has something of another type there
  -- Celery's rule: what has succeeded stays so.
  if is_free and not (known and string.sub(known, 1, #SUCCEEDED) == SUCCEEDED) then
    if kept_ms > 0 then redis.call('SET', key, text, 'PX', kept_ms) else redis.call('SET', key, text) end
    redis.call('PUBLISH', key, text)
  end
end
return lost
