#!lua flags=no-writes,allow-oom
-- select: which messages a consumer with this view would claim; the view may be out of date.
--
-- KEYS     as in parts/queue.lua
-- ARGV[1]  index, ARGV[2] how many are active: the view
-- ARGV[3]  how many at the most
-- ARGV[4]  guarantee
-- ARGV[5]  where to begin: '0', or what an earlier call answered
-- Returns  {where to go on or '', {id, ...}}
-- Atomic because: it reads one state of the queue.

-- @include clock
-- @include queue
-- @include end
-- @include take

local index, total, count = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local guarantee, start = ARGV[4], ARGV[5]

local ids, stopped_at = candidates(start, count, guarantee, index, total, 'own', 0)
return { stopped_at or '', ids }
