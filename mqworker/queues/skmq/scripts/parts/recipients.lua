-- recipients: who is registered at an app's queue. An entry is 'status weight host port id'.

-- All that may be sent something, in the order of their keys: {key =, weight =, entry =}.
local function alive_recipients(recipients)
  local alive = {}
  local entries = redis.call('HGETALL', recipients)
  for i = 1, #entries, 2 do
    local weight, address = string.match(entries[i + 1], '^alive (%d+) (.+)$')
    if weight then alive[#alive + 1] = { key = entries[i], weight = tonumber(weight), address = address } end
  end
  table.sort(alive, function(one, other) return one.key < other.key end)
  return alive
end

-- The entry without status and weight, when the recipient may be sent something; nil otherwise.
local function address_of(recipients, key)
  return string.match(redis.call('HGET', recipients, key) or '', '^alive %d+ (.+)$')
end
