-- xid: ids of twenty characters that begin with the server's second. Mirrors queues/topics/xid.py, which explains them.

local XID_DIGITS = '0123456789abcdefghijklmnopqrstuv'

local function xid_digit(value) return string.sub(XID_DIGITS, value + 1, value + 1) end

-- A function that makes ids of this second, each from its last fourteen characters as they were in the second zero:
-- of the first of these two bits belong to the seconds, and are filled in.
local function xid_maker(seconds)
  local text, rest = {}, math.floor(seconds / 4)
  for place = 6, 1, -1 do
    text[place] = xid_digit(rest % 32)
    rest = math.floor(rest / 32)
  end
  local head, heads = table.concat(text), {}
  for value = 0, 7 do heads[XID_DIGITS:byte(value + 1)] = head .. xid_digit(seconds % 4 * 8 + value) end
  return function(tail) return heads[string.byte(tail)] .. string.sub(tail, 2) end
end
