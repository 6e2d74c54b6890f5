#!lua
-- await: ask to be told when messages end, and read the outcome of those that did already.
--
-- KEYS     as in parts/keys.lua
-- ARGV     ids
-- Returns  {result or grave or false, ...}: 'S<result>', 'C', 'E', 'D<grave>'; false while it has not ended
-- Repeatable: asking twice is asking once.

-- @include slices
-- @include keys

local outcomes, open = {}, {}
redis.call('SCARD', waiters)
for i, id in ipairs(ARGV) do
  local result = redis.call('HGET', results, id) or redis.call('HGET', old_results, id)
  local grave = not result and redis.call('HGET', graves, id)
  if result and result ~= 'X' then
    outcomes[i] = result
  elseif grave then
    outcomes[i] = 'D' .. grave
  else
    outcomes[i] = false
    open[#open + 1] = id
  end
end
if #open > 0 then call_many('SADD', waiters, open) end
return outcomes
