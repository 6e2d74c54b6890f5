-- xid: ids of twenty characters that begin with the server's second. Mirrors model/xid.py, which explains them.

local XID_DIGITS = '0123456789abcdefghijklmnopqrstuv'

-- tail: the other eight bytes, as sixteen hexadecimal digits
local function xid(seconds, tail)
  local text, rest, bits = {}, 0, 0
  for byte in string.gmatch(string.format('%08x', seconds) .. tail .. '00', '%x%x') do
    rest, bits = rest * 256 + tonumber(byte, 16), bits + 8
    while bits >= 5 and #text < 20 do
      bits = bits - 5
      local digit = math.floor(rest / 2 ^ bits)
      text[#text + 1] = string.sub(XID_DIGITS, digit + 1, digit + 1)
      rest = rest - digit * 2 ^ bits
    end
  end
  return table.concat(text)
end
