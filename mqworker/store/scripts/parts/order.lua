-- order: judges a call by its place in its lane. A lane makes one call at a time and its numbers only go up, so whatever
-- is not above the newest number was made before: the newest call gets its answer again, an older one is late, its
-- caller was answered long ago. Numbers are compared as text, which is exact however large they are.

local REFUSED = '!' -- with which a remembered refusal begins, and no other remembered reply

-- The reply to give again, or the error to answer with; neither when the call is new.
local function judge(number, newest_number, reply)
  if number == newest_number then
    if string.sub(reply, 1, 1) ~= REFUSED then return reply end
    return nil, redis.error_reply(string.sub(reply, 2))
  end
  if #number > #newest_number or #number == #newest_number and number > newest_number then return nil end
  return nil, redis.error_reply('MQW_STALE call ' .. number .. ' came after call ' .. newest_number .. ' of its lane')
end

-- What is remembered of a refusal: the repeated call must be refused too, whatever has changed meanwhile.
local function as_refused(refusal)
  return REFUSED .. string.gsub(refusal.err, '^%-', '')
end
