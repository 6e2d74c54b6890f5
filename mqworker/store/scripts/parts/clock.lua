-- clock: the server's time; no script trusts a client's clock.

local now_ms = (function()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end)()

-- An instant is given as epoch milliseconds, or as '+n': n milliseconds from now.
local function instant_ms(text)
  if string.sub(text, 1, 1) == '+' then
    return now_ms + tonumber(string.sub(text, 2))
  end
  return tonumber(text)
end

-- %.0f, not %d or tostring: the one format that writes all 13 digits on every Lua.
local function digits(number)
  return string.format('%.0f', number)
end
