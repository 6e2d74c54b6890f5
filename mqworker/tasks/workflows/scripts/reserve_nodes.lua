#!lua
-- reserve_nodes: numbers for what a running member adds to its workflow: the same ones, however often it asks.
-- A message that is no member gets a workflow of its own, its tree, with the one node 'parent' to begin with.
--
-- KEYS[1]  flow     hash, as in advance_workflow.lua, and
--   next           the first free number      root  queue of the message whose tree it is; stamp  when that was enqueued
--   z<node>        the newest fence under which it has added anything
--   n<node>/<key>  numbers given for this key, as 'first-last ...'
-- ARGV[1]  the node that adds; ARGV[2] its fence; ARGV[3] key; ARGV[4] how many
-- ARGV[5]  how many nodes a workflow may have; ARGV[6] queue of the message, ARGV[7] its stamp: of a tree, else ''
-- ARGV[8]  '1' when the message has spawned before; ARGV[9] ms that a tree is kept when it has ended, ARGV[10] while it runs
-- Returns  {'ok', 'first-last ...'}, or why not: {'cancelled'}, {'lost'}, {'over', state}, {'full', number},
--          {'taken', queue}
-- Repeatable: the same numbers are given for the same key.

local flow = KEYS[1]
local node, fence, key, count, most = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local queue, stamp, has_spawned, kept_ms, running_ms = ARGV[6], ARGV[7], ARGV[8] == '1', ARGV[9], ARGV[10]

local plan = redis.call('HMGET', flow, 'state', 'next', 'root', 'stamp', 'open', 'goes_on', 'r' .. node)
local state, next_number, root, known_stamp, open = plan[1], tonumber(plan[2] or 0), plan[3], plan[4], tonumber(plan[5] or nil)
local outcome = plan[7]

local function begin_tree()
  redis.call('DEL', flow)
  redis.call('HSET', flow, 'state', 'running', 'end', 'parent', 'open', 1, 'goes_on', 1, 'kept_ms', kept_ms,
    'root', queue, 'stamp', stamp, 'next', next_number)
  redis.call('PEXPIRE', flow, running_ms)
  state, open, outcome = 'running', 1, false
end

-- The tree of another message may be there: an id that was chosen by the caller can be used again, in another queue even.
local function find_tree()
  local is_revived = has_spawned and outcome and string.sub(outcome, 1, 1) == 'D'
  if known_stamp == '?' and not is_revived then return { 'lost' } end -- advance_workflow.lua has seen its end
  if not state or known_stamp == '?' then return begin_tree() end
  if root ~= queue then return { 'taken', root or 'a workflow' } end
  if known_stamp == stamp then return nil end
  if is_revived then
    redis.call('HSET', flow, 'stamp', stamp)
  elseif state == 'running' then
    return { 'taken', queue }
  else
    begin_tree()
  end
end

if queue ~= '' then
  local refusal = find_tree()
  if refusal then return refusal end
end
if state == 'cancelled' then return { 'cancelled' } end
if not state or not open then return { 'over', state or 'unknown' } end
local newest = tonumber(redis.call('HGET', flow, 'z' .. node) or 0)
if fence < newest then return { 'lost' } end
if outcome and (string.sub(outcome, 1, 1) ~= 'D' or newest == fence) then return { 'lost' } end

-- It was given up and revived: it runs again, and its end will count anew.
if outcome then
  if not plan[6] or state ~= 'running' and redis.call('HGET', flow, 'failed') ~= node then return { 'over', state } end
  local failed = {}
  for each in string.gmatch(redis.call('HGET', flow, 'failed') or '', '[^ ]+') do
    if each ~= node then failed[#failed + 1] = each end
  end
  redis.call('HDEL', flow, 'r' .. node)
  redis.call('HSET', flow, 'failed', table.concat(failed, ' '), 'state', 'running', 'open', open + 1)
  redis.call('PEXPIRE', flow, running_ms)
elseif state ~= 'running' then
  return { 'over', state }
end

local field = 'n' .. node .. '/' .. key
local ranges = redis.call('HGET', flow, field) or ''
local known = 0
for first, last in string.gmatch(ranges, '(%d+)%-(%d+)') do known = known + tonumber(last) - tonumber(first) + 1 end
if known < count then
  local last = next_number + count - known - 1
  if last >= most then return { 'full', next_number } end
  ranges = ranges .. (known > 0 and ' ' or '') .. string.format('%d-%d', next_number, last)
  redis.call('HSET', flow, field, ranges, 'next', last + 1)
end
redis.call('HSET', flow, 'z' .. node, string.format('%.0f', fence))
return { 'ok', ranges }
