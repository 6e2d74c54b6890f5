#!lua flags=no-writes,allow-oom
-- look_workflow: nodes of one workflow, without the arguments and results, which may be large.
--
-- KEYS[1]  flow     hash, see advance_workflow.lua
-- ARGV[1]  first node; ARGV[2] how many
-- Returns  {state, end, ms that it is still kept, {node, ...}, whether there are more}; a node is {number, task, queue, input_from, outcome, followers, inputs, collects}, where
--          task is '' for a join, outcome the letter of its end, and inputs those that a join collects

-- @include slices

local flow = KEYS[1]
local first, count = tonumber(ARGV[1]), tonumber(ARGV[2])

local names = {}
for node = first, first + count - 1 do
  for _, kind in ipairs({ 't', 'r', 'f', 'i', 'c', 'x' }) do names[#names + 1] = kind .. string.format('%d', node) end
end
-- With those that follow after a failure, and those that the node has added.
local function all_followers(followers, branches)
  local all = string.gsub(followers or '', 's%d+', function(start) return redis.call('HGET', flow, 'f' .. start) or '' end)
  return all .. string.gsub(branches or '', '%d+:(%d+)', ' %1')
end

local plan = redis.call('HMGET', flow, 'state', 'end', 'next')
local nodes, values = {}, read_many('HMGET', flow, names)
for at = 0, count - 1 do
  local call, outcome, followers = values[at * 6 + 1], values[at * 6 + 2], values[at * 6 + 3]
  local inputs, collects, branches = values[at * 6 + 4], values[at * 6 + 5], values[at * 6 + 6]
  if call or inputs then
    -- As workflow.py writes it: queue and task come first, names without a quote; the input is the last.
    local queue = call and string.match(string.sub(call, 1, 600), '"queue": "([^"]*)"') or ''
    local task = call and string.match(string.sub(call, 1, 600), '"task": "([^"]*)"') or (call and '?' or '')
    local input = call and string.match(string.sub(call, -60), '"input_from": (%d+)') or ''
    nodes[#nodes + 1] = {
      first + at, task, queue, input, string.sub(outcome or '', 1, 1), all_followers(followers, branches), inputs or '', collects or '',
    }
  end
end
return { plan[1] or '', plan[2] or '', redis.call('PTTL', flow), nodes,
  plan[3] and first + count < tonumber(plan[3]) and 1 or 0 }
