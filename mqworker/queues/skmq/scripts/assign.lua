#!lua flags=allow-oom
-- assign: say to whom deliveries are to be pushed, each to one recipient.
--
-- KEYS[1]  recipients  hash   key -> 'status weight host port id'
-- KEYS[2]  assigned    hash   key -> count
-- ARGV     for each delivery the key of the recipient it is for, '' for anyone
-- Returns  {key, 'host port id', ...}: both '' when nobody can be sent it
-- Atomic because: two nodes that choose at once must not count one share twice.
-- Repeatable: the second time counts once more, which shifts shares by one delivery and nothing else.

-- @include recipients

local recipients, assigned = KEYS[1], KEYS[2]
local alive = alive_recipients(recipients)
local count_by_key = {}
local counts = redis.call('HGETALL', assigned)
for i = 1, #counts, 2 do count_by_key[counts[i]] = tonumber(counts[i + 1]) end

-- Who is furthest behind its share; who was given nothing yet comes first.
local function furthest_behind()
  local best, best_lag
  for _, each in ipairs(alive) do
    local count = count_by_key[each.key] or 0
    local lag = count == 0 and math.huge or (each.weight + 1) / count
    if not best or lag > best_lag then best, best_lag = each, lag end
  end
  return best
end

local chosen = {}
for i, key in ipairs(ARGV) do
  local address = key ~= '' and address_of(recipients, key)
  local best = key == '' and furthest_behind()
  if best then
    key, address = best.key, best.address
    count_by_key[key] = redis.call('HINCRBY', assigned, key, 1)
  end
  chosen[2 * i - 1] = address and key or ''
  chosen[2 * i] = address or ''
end
return chosen
