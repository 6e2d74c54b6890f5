-- fence: the number of a delivery, which proves its lease.

-- The first of so many new fences; they count up from it. `latest` is the field of meta.
-- Not only counted but no less than the time: a server that goes back in time, after a failover or a kill with
-- writes not yet on disk, must not give out again what somebody still holds for another message.
local function first_fence(latest, at_ms, count)
  local first = math.max((tonumber(latest) or 0) + 1, at_ms * 1000)
  -- They are passed as numbers, for speed; some servers would write one with so many zeros as 1.7948018e+15.
  local round = math.floor((first + count - 1) / 1e8) * 1e8
  return round >= first and round + 1 or first
end
