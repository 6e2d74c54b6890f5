#!lua flags=allow-oom
-- advance_workflow: note how members of a workflow ended, and say which calls are to be enqueued now.
-- Nodes are calls, joins (which collect a group), and 'start'. All that is known of a workflow is one hash:
--   state          'running', 'done', 'failed <node>' or 'cancelled'; missing: no such workflow
--   end            the node whose outcome is the result
--   f<node>        its followers, with spaces between      l<join>  of how many predecessors the end is missing
--   r<node>        how it ended: 'S<result>', 'D<letter>', 'C' or 'E'      c<node>  its failure is a value, not an end
--   failed         nodes whose failure ends the workflow     uncounted  nodes that ended well after it had failed
--
-- A member that was given up may be revived. When it succeeds then, that takes the place of its failure; when it was
-- the last one that had failed, the workflow runs again, and what ended well meanwhile counts now.
--
-- KEYS[1]  flow     hash; its name is also the channel on which the end is told
-- ARGV[1]  ms that the outcome is kept; ARGV[2] ms that it is kept while it runs; then node, outcome, ...
--          ('start', '' begins)
-- Returns  {node, ...}: calls that may be made now. They may have been made before: that is for their guard to say
-- Repeatable: each outcome counts once; asked again, the same calls are named until they have ended.

-- @include clock

local flow = KEYS[1]
local kept_ms, running_ms, first_pair = ARGV[1], ARGV[2], 3

local function nodes_in(text)
  local nodes = {}
  for node in string.gmatch(text or '', '[^ ]+') do nodes[#nodes + 1] = node end
  return nodes
end

local plan = redis.call('HMGET', flow, 'state', 'end', 'failed', 'uncounted')
local state, end_node, failed, uncounted = plan[1], plan[2], nodes_in(plan[3]), nodes_in(plan[4])
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
  for _, follower in ipairs(nodes_in(redis.call('HGET', flow, 'f' .. node))) do
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

local function is_failure(node, outcome)
  return node ~= 'start' and string.sub(outcome, 1, 1) ~= 'S' and redis.call('HEXISTS', flow, 'c' .. node) == 0
end

-- Its failure was made good: with no other one left, the workflow goes on, with what ended well meanwhile.
local function mend(node)
  for i = #failed, 1, -1 do
    if failed[i] == node then table.remove(failed, i) end
  end
  if string.sub(state, 1, 6) ~= 'failed' then return end
  state = #failed == 0 and 'running' or 'failed ' .. failed[1]
  if state ~= 'running' then return end
  for _, each in ipairs(uncounted) do go_on(each, true) end
  uncounted = {}
end

for at = first_pair, #ARGV, 2 do
  local node, outcome = ARGV[at], ARGV[at + 1]
  local known = redis.call('HGET', flow, 'r' .. node)
  local was_given_up = known and string.sub(known, 1, 1) == 'D' and is_failure(node, known)
  local is_mended = was_given_up and not is_failure(node, outcome)
  local is_new = not known or is_mended
  if is_new then redis.call('HSET', flow, 'r' .. node, outcome) else outcome = known end
  if is_mended then mend(node) end
  if is_failure(node, outcome) then
    if is_new then failed[#failed + 1] = node end
    if state == 'running' then state = 'failed ' .. node end
  elseif state == 'running' then
    go_on(node, is_new)
  elseif is_new then
    uncounted[#uncounted + 1] = node
  end
end

if #failed + #uncounted > 0 or plan[3] or plan[4] then
  redis.call('HSET', flow, 'failed', table.concat(failed, ' '), 'uncounted', table.concat(uncounted, ' '))
end
if state == 'running' and has_ended(end_node) then state = 'done' end
if state ~= plan[1] then
  redis.call('HSET', flow, 'state', state)
  redis.call('PEXPIRE', flow, state == 'running' and running_ms or kept_ms)
  if state ~= 'running' then redis.call('SPUBLISH', flow, state) end
end
return state == 'running' and calls or {}
