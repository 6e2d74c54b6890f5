-- keys: the keys of one work queue, in the one order that every script receives them.
--
-- Mirrors WorkQueueKeys in queues/work/keys.py, where the type and the purpose of each key are written down.
-- Reading a key with a command of its type, before the first write, is how scripts notice a foreign key in its
-- place: Redis answers WRONGTYPE and nothing is half-written (Lua does not roll back).

local meta, ready, urgent, delayed, parcels = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local leases, deadlines, guards = KEYS[6], KEYS[7], KEYS[8]
local dead, letters, results, old_results, waiters = KEYS[9], KEYS[10], KEYS[11], KEYS[12], KEYS[13]
local consumers, events, outbox, over = KEYS[14], KEYS[15], KEYS[16], KEYS[17]
local ticks, all_limits, bucket_times = KEYS[18], KEYS[19], KEYS[20]
