#!lua flags=allow-oom
-- advance_workflow: note how members of a workflow ended, and say which calls are to be enqueued now.
-- Nodes are calls, joins (which collect a group), and 'start'. All that is known of a workflow is one hash:
--   state          'running', 'done', 'failed <node>' or 'cancelled'; missing: no such workflow
--   end            the node whose outcome is the result
--   f<node>        its followers, with spaces between      l<join>  of how many predecessors the end is missing
--   r<node>        how it ended: 'S<result>', 'D<letter>', 'C' or 'E'      c<node>  its failure is a value, not an end
--
-- KEYS[1]  flow     hash; its name is also the channel on which the end is told
-- ARGV[1]  ms that the outcome is kept; then node, outcome, ... ('start', '' begins)
-- Returns  {node, ...}: calls that may be made now. They may have been made before: that is for their guard to say
-- Repeatable: each outcome counts once; asked again, the same calls are named until they have ended.

-- @include clock

local flow = KEYS[1]
local kept_ms, first_pair = ARGV[1], 2

local state = redis.call('HGET', flow, 'state')
if not state then return {} end
local calls, is_named = {}, {}

local function name(call)
  if not is_named[call] and redis.call('HEXISTS', flow, 'r' .. call) == 0 then
    calls[#calls + 1] = call
    is_named[call] = true
  end
end

-- A node has ended, just now (is_new) or earlier.
local function go_on(node, is_new)
  for follower in string.gmatch(redis.call('HGET', flow, 'f' .. node) or '', '[^ ]+') do
    local left = redis.call('HGET', flow, 'l' .. follower)
    if not left then
      name(follower)
    else
      if is_new then left = redis.call('HINCRBY', flow, 'l' .. follower, -1) end
      if tonumber(left) == 0 then go_on(follower, is_new) end
    end
  end
end

local function has_ended(node)
  return redis.call('HEXISTS', flow, 'r' .. node) == 1 or redis.call('HGET', flow, 'l' .. node) == '0'
end

for at = first_pair, #ARGV, 2 do
  local node, outcome = ARGV[at], ARGV[at + 1]
  local is_new = redis.call('HSETNX', flow, 'r' .. node, outcome) == 1
  outcome = is_new and outcome or redis.call('HGET', flow, 'r' .. node)
  local has_failed = node ~= 'start' and string.sub(outcome, 1, 1) ~= 'S'
  if has_failed and redis.call('HEXISTS', flow, 'c' .. node) == 0 then
    if state == 'running' then state = 'failed ' .. node end
  elseif state == 'running' then
    go_on(node, is_new)
  end
end

if state == 'running' and has_ended(redis.call('HGET', flow, 'end')) then state = 'done' end
if state ~= 'running' then
  if redis.call('HGET', flow, 'state') ~= state then
    redis.call('HSET', flow, 'state', state)
    redis.call('PEXPIRE', flow, kept_ms)
    redis.call('SPUBLISH', flow, state)
  end
  return {}
end
return calls
