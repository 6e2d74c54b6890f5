#!lua flags=allow-oom
-- give_back: put what waits here for its time or its next try back into Celery's lists, as it came.
--
-- For the way back to Celery: its workers do the waiting then. What is held is not touched.
-- KEYS     as in parts/queue.lua
-- ARGV[1]  how many at the most; ARGV[2] how many lists
-- Returns  how many were put back
-- Repeatable: what was put back is not found again.

-- @include clock
-- @include queue

local limit, list_count = tonumber(ARGV[1]), tonumber(ARGV[2])

check_types(list_count)
local entries, returned = redis.call('ZREVRANGE', waiting, 0, limit - 1), 0
for _, entry in ipairs(entries) do
  local found = opened(entry)
  redis.call('ZREM', waiting, entry)
  if found then
    put_back(entry, found, list_count)
    returned = returned + 1
  end
end
return returned
