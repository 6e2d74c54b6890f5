#!lua
-- grow_workflow: add calls to a workflow, made by a running member; and a call that follows from them, and from its end.
-- They are made when the outbox says so: by the start that this names, or at the latest when the member has ended well.
--
-- KEYS[1]  flow     hash, as in advance_workflow.lua and reserve_nodes.lua, and
--   starts         how many starts there are: nodes 's<number>', whose followers are what was added
--   v<node>        the start that begins it and what was added with it
-- ARGV[1]  the node that adds; ARGV[2] its fence
-- ARGV[3]  join of what follows from them, ARGV[4] the call that follows, ARGV[5] its template: '' for none
-- ARGV[6..] node, template, ...: the calls
-- Returns  {'ok', start, ...}: starts that are not begun yet; or {'cancelled'}, {'lost'}, {'over', state}
-- Repeatable: what is there already is not added again.

local flow = KEYS[1]
local node, fence, join, callback, template, first_pair = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5], 6

local plan = redis.call('HMGET', flow, 'state', 'r' .. node, 'z' .. node, 'open', 'f' .. node)
local state, followers = plan[1], plan[5] or ''
if state == 'cancelled' then return { 'cancelled' } end
if state ~= 'running' then return { 'over', state or 'unknown' } end
if plan[2] or fence < tonumber(plan[3] or 0) then return { 'lost' } end

local function follow(follower)
  followers = followers .. (followers == '' and '' or ' ') .. follower
  redis.call('HSET', flow, 'f' .. node, followers)
end

local added = {}
for at = first_pair, #ARGV, 2 do
  if redis.call('HSETNX', flow, 't' .. ARGV[at], ARGV[at + 1]) == 1 then
    added[#added + 1] = ARGV[at]
    redis.call('HSET', flow, 'c' .. ARGV[at], 1) -- its failure is for whoever waits for it
    if join ~= '' then redis.call('HSET', flow, 'f' .. ARGV[at], join) end
  end
end

if join ~= '' then
  if redis.call('HSETNX', flow, 't' .. callback, template) == 1 then
    redis.call('HSET', flow, 'l' .. join, 1, 'i' .. join, '', 'f' .. join, callback)
    redis.call('HINCRBY', flow, 'open', 1)
    follow(join)
  elseif #added > 0 then
    redis.call('HSET', flow, 't' .. callback, template) -- of more members than before
  end
  if #added > 0 then
    local inputs = redis.call('HGET', flow, 'i' .. join)
    redis.call('HINCRBY', flow, 'l' .. join, #added)
    redis.call('HSET', flow, 'i' .. join, inputs .. (inputs == '' and '' or ' ') .. table.concat(added, ' '))
  end
end

local starts = { 'ok' }
local earlier = ARGV[first_pair] and redis.call('HGET', flow, 'v' .. ARGV[first_pair])
if earlier and redis.call('HEXISTS', flow, 'r' .. earlier) == 0 then starts[2] = earlier end
if #added > 0 then
  local start = string.format('s%d', redis.call('HINCRBY', flow, 'starts', 1))
  redis.call('HSET', flow, 'f' .. start, table.concat(added, ' '), 'v' .. added[1], start)
  redis.call('HINCRBY', flow, 'open', #added)
  follow(start)
  starts[#starts + 1] = start
end
return starts
