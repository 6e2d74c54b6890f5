#!lua flags=allow-oom
-- advance_workflow: note how members of a workflow ended, and say which calls are to be enqueued now.
-- Nodes are calls, joins (which collect several), and 'start'. All that is known of a workflow is one hash:
--   state          'running', 'done', 'failed <node>' or 'cancelled'; missing: no such workflow
--   end            the node whose outcome is the result      open  calls that have not ended and were not left out
--   f<node>        its followers, with spaces between      l<join>  of how many predecessors the end is missing
--   r<node>        how it ended: 'S<result>', 'D<letter>', 'C' or 'E'; 'K' it was left out
--   c<node>        its failure is a value, not an end        kept_ms  ms that the outcome is kept
--   failed         nodes whose failure fails the workflow     uncounted  nodes that ended well after it had failed
-- Without `goes_on` the first failure ends the workflow. With it a failure leaves out what follows from it, and all
-- the rest goes on; then the workflow has failed. For that there are
--   k<node>        the failure because of which its followers are left out: a node, or '-' for a branch without cause
--   s<join>        how many of its predecessors are left out or failed     b<join>  because of which failure
--   x<node>        'first:call ...': calls for a failure of one of the nodes from first to this one
-- A running member may add nodes (grow_workflow.lua): its followers then hold 's<number>', which begins the added ones.
--
-- A member that was given up may be revived. When it succeeds then, that takes the place of its failure; when it was
-- the last one that had failed, the workflow runs again, and what ended well meanwhile counts now.
--
-- KEYS[1]  flow     hash; its name is also the channel on which the end is told
-- ARGV[1]  ms that it is kept while it runs; then node, outcome, ... ('start', '' begins)
-- Returns  {is_cancelled, node, ...}: calls that may be made now. They may have been made before: that is for their
--          guard to say. Of a workflow that was cancelled those that may have been made: they are to be cancelled
-- Repeatable: each outcome counts once; asked again, the same calls are named until they have ended.

-- @include clock

local flow = KEYS[1]
local running_ms, first_pair = ARGV[1], 2

local function nodes_in(text)
  local nodes = {}
  for node in string.gmatch(text or '', '[^ ]+') do nodes[#nodes + 1] = node end
  return nodes
end

local plan = redis.call('HMGET', flow, 'state', 'end', 'failed', 'uncounted', 'open', 'goes_on', 'kept_ms')
local state, end_node, failed, uncounted = plan[1], plan[2], nodes_in(plan[3]), nodes_in(plan[4])
local open = tonumber(plan[5] or nil) -- nil: an older version enqueued it
local goes_on, kept_ms = plan[6], plan[7] or '1'
local calls, is_named = {}, {}

-- A parent that ended before it had added anything: nobody may add in its name any more.
if not state then
  if ARGV[first_pair] == 'parent' then
    redis.call('HSET', flow, 'state', 'done', 'stamp', '?', 'rparent', ARGV[first_pair + 1])
    redis.call('PEXPIRE', flow, 600000)
  end
  return { 0 }
end

local function name(call)
  if not is_named[call] and redis.call('HEXISTS', flow, 'r' .. call) == 0 then
    calls[#calls + 1] = call
    is_named[call] = true
  end
end

local function is_left_out(call)
  return redis.call('HSTRLEN', flow, 'r' .. call) == 1 and redis.call('HGET', flow, 'r' .. call) == 'K'
end

-- A node has ended, just now (is_new) or earlier, and no failure leaves out what follows.
local function go_on(node, is_new)
  for _, follower in ipairs(nodes_in(redis.call('HGET', flow, 'f' .. node))) do
    local left = redis.call('HGET', flow, 'l' .. follower)
    if not left then
      local is_start = string.sub(follower, 1, 1) == 's' -- of what it added; begun already, as a rule
      if not is_start then
        name(follower)
      elseif redis.call('HSETNX', flow, 'r' .. follower, '') == 1 or not is_new then
        go_on(follower, is_new)
      end
    else
      if is_new then left = redis.call('HINCRBY', flow, 'l' .. follower, -1) end
      if tonumber(left) == 0 then go_on(follower, is_new) end
    end
  end
end

-- The same where a failure (`cause`) leaves out what follows. `was` is how followers count the node up to now: 'new',
-- not yet; 'bad', as failed or left out; 'same', as it is: then all that may have to be made is named again.
local spread = {} -- a list and not recursion: what is left out may be a chain of thousands

local function push(node, was, cause)
  spread[#spread + 1] = { node, was, cause }
end

local function make(call)
  if is_left_out(call) then -- no longer: what it waits for was made good
    redis.call('HDEL', flow, 'r' .. call)
    open = open + 1
  end
  name(call)
end

local function leave_out(call, was, cause)
  if redis.call('HSETNX', flow, 'r' .. call, 'K') == 1 then
    open = open - 1
    push(call, 'new', cause)
  elseif was ~= 'new' and is_left_out(call) then
    push(call, was, cause)
  end
end

local function pass_to_join(join, was, cause)
  local left = nil
  if was == 'new' then
    left = redis.call('HINCRBY', flow, 'l' .. join, -1)
    if cause then redis.call('HINCRBY', flow, 's' .. join, 1) end
  elseif was == 'bad' and not cause then
    redis.call('HINCRBY', flow, 's' .. join, -1)
  end
  if cause and was ~= 'same' then redis.call('HSET', flow, 'b' .. join, cause) end
  if tonumber(left or redis.call('HGET', flow, 'l' .. join)) ~= 0 then return end
  local is_bad = tonumber(redis.call('HGET', flow, 's' .. join) or 0) > 0
  if was == 'bad' and is_bad and not cause then return end
  push(join, was, is_bad and redis.call('HGET', flow, 'b' .. join) or nil)
end

local function pass_to_branches(node, was, cause)
  for _, branch in ipairs(nodes_in(redis.call('HGET', flow, 'x' .. node))) do
    local first, call = string.match(branch, '^(%d+):(%d+)$')
    local is_inside = cause and tonumber(cause) and tonumber(cause) >= tonumber(first)
    if is_inside then
      make(call)
    elseif was == 'new' then
      leave_out(call, 'new', cause or '-')
    end
  end
end

local is_seen = {}
local function pass_on(node, was, cause)
  push(node, was, cause)
  local at = 1
  while at <= #spread do
    local each, how, why = spread[at][1], spread[at][2], spread[at][3]
    at = at + 1
    if how ~= 'same' or not is_seen[each] then
      is_seen[each] = true
      if why and how ~= 'same' then redis.call('HSET', flow, 'k' .. each, why) end
      if not why and how == 'bad' then redis.call('HDEL', flow, 'k' .. each) end
      for _, follower in ipairs(nodes_in(redis.call('HGET', flow, 'f' .. each))) do
        if string.sub(follower, 1, 1) == 's' then
          if redis.call('HSETNX', flow, 'r' .. follower, '') == 1 then
            push(follower, 'new', nil)
          elseif how == 'same' then
            push(follower, 'same', nil)
          end
        elseif redis.call('HEXISTS', flow, 'l' .. follower) == 1 then
          pass_to_join(follower, how, why)
        elseif why then
          leave_out(follower, how, why)
        else
          make(follower)
        end
      end
      pass_to_branches(each, how, why)
    end
  end
  spread = {}
end

-- An end counts for what follows: a failure with its cause, a good one without.
local function count(node, is_new, cause)
  if not goes_on then
    if not cause then go_on(node, is_new) end
    return
  end
  local was = is_new and 'new' or 'same'
  if is_new and redis.call('HEXISTS', flow, 'k' .. node) == 1 then was = 'bad' end
  pass_on(node, was, cause)
end

local function has_ended(node)
  return redis.call('HEXISTS', flow, 'r' .. node) == 1 or redis.call('HGET', flow, 'l' .. node) == '0'
end

local function is_failure(node, outcome)
  return string.sub(node, 1, 1) ~= 's' and string.sub(outcome, 1, 1) ~= 'S' and redis.call('HEXISTS', flow, 'c' .. node) == 0
end

-- Its failure was made good: with no other one left, the workflow goes on, with what ended well meanwhile.
local function mend(node)
  for i = #failed, 1, -1 do
    if failed[i] == node then table.remove(failed, i) end
  end
  if string.sub(state, 1, 6) ~= 'failed' then return end
  state = #failed == 0 and 'running' or 'failed ' .. failed[1]
  if state ~= 'running' then return end
  for _, each in ipairs(uncounted) do count(each, true, nil) end
  uncounted = {}
end

-- A parent was cancelled, and with it all that it has added, and what that has added.
local function cancel_tree()
  if state == 'running' then state = 'cancelled' end
  if state ~= 'cancelled' then return end
  local found, at = { 'parent' }, 1
  while at <= #found do
    for _, follower in ipairs(nodes_in(redis.call('HGET', flow, 'f' .. found[at]))) do
      if redis.call('HEXISTS', flow, 'l' .. follower) == 0 then
        if string.sub(follower, 1, 1) ~= 's' then name(follower) end
        found[#found + 1] = follower
      end
    end
    at = at + 1
  end
end

for at = first_pair, #ARGV, 2 do
  local node, outcome = ARGV[at], ARGV[at + 1]
  local known = redis.call('HGET', flow, 'r' .. node)
  local was_given_up = known and string.sub(known, 1, 1) == 'D' and is_failure(node, known)
  local is_mended = was_given_up and not is_failure(node, outcome)
  local is_new = not known or is_mended
  if is_new then redis.call('HSET', flow, 'r' .. node, outcome) else outcome = known end
  if open and not known and string.sub(node, 1, 1) ~= 's' then open = open - 1 end
  if is_mended then mend(node) end
  if node == 'parent' and string.sub(outcome, 1, 1) == 'C' then
    cancel_tree()
  elseif known == 'K' then -- left out, it has no end: somebody else's message has its id
  elseif is_failure(node, outcome) then
    if is_new then failed[#failed + 1] = node end
    if state == 'running' and not goes_on then state = 'failed ' .. node end
    if state == 'running' or not is_new then count(node, is_new, node) end
  elseif state == 'running' or (state == 'cancelled' and not is_new) then
    count(node, is_new, nil)
  elseif is_new then
    uncounted[#uncounted + 1] = node
  end
end

if #failed + #uncounted > 0 or plan[3] or plan[4] then
  redis.call('HSET', flow, 'failed', table.concat(failed, ' '), 'uncounted', table.concat(uncounted, ' '))
end
if open and tostring(open) ~= plan[5] then redis.call('HSET', flow, 'open', string.format('%d', open)) end
if state == 'running' and (open and open <= 0 or not open and has_ended(end_node)) then
  state = #failed > 0 and 'failed ' .. failed[1] or 'done'
end
if state ~= plan[1] then
  redis.call('HSET', flow, 'state', state)
  redis.call('PEXPIRE', flow, state == 'running' and running_ms or kept_ms)
  if state ~= 'running' then redis.call('SPUBLISH', flow, state) end
end
if state ~= 'running' and state ~= 'cancelled' then return { 0 } end
table.insert(calls, 1, state == 'cancelled' and 1 or 0)
return calls
