#!lua
-- await: ask to be told when messages end, and read the outcome of those that did already.
--
-- KEYS     as in parts/keys.lua
-- ARGV     ids
-- Returns  {result or dead letter or false, ...}: 'S<result>', 'C', 'E', 'D<dead letter>'; false while it has not ended
-- Repeatable: asking twice is asking once.

-- @include slices
-- @include keys

local outcomes, open = {}, {}
redis.call('SCARD', waiters)
for i, id in ipairs(ARGV) do
  local result = redis.call('HGET', results, id) or redis.call('HGET', old_results, id)
  local stored = not result and redis.call('HGET', letters, id)
  if result and result ~= 'X' then
    outcomes[i] = result
  elseif stored then
    outcomes[i] = 'D' .. stored
  else
    outcomes[i] = false
    open[#open + 1] = id
  end
end
if #open > 0 then call_many('SADD', waiters, open) end
return outcomes
