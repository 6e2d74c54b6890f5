-- result_ends: when results end that are kept for a shorter time than others of their queue: those are dropped one by
-- one, all others by the period. Its key is in the queue's slot, made from the name of a declared one (decision 9).
-- Needs: keys.

local result_ends = results .. ':ends' -- zset: id -> ends at, ms
