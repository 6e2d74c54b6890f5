-- slices: commands with any number of values. Lua's stack holds about 8,000; `unpack` of more is an error in the
-- middle of a script, after which half of it has happened. So no script calls it but by these
-- (tests/architecture/test_lua_slices.py).

local MOST_VALUES = 4000 -- even, so that pairs stay together

-- For writing: the last reply, nil when there are no values.
local function call_many(command, key, values)
  local reply
  for first = 1, #values, MOST_VALUES do
    reply = redis.call(command, key, unpack(values, first, math.min(first + MOST_VALUES - 1, #values)))
  end
  return reply
end

-- For reading: one reply for each value.
local function read_many(command, key, values)
  if #values <= MOST_VALUES then return #values > 0 and redis.call(command, key, unpack(values)) or {} end
  local replies = {}
  for first = 1, #values, MOST_VALUES do
    local last = math.min(first + MOST_VALUES - 1, #values)
    for _, reply in ipairs(redis.call(command, key, unpack(values, first, last))) do replies[#replies + 1] = reply end
  end
  return replies
end

-- The values of a list from a position on, behind others if there are any.
local function values_from(list, first, before)
  local values = before or {}
  for at = first, #list do values[#values + 1] = list[at] end
  return values
end
