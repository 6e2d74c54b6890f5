#!lua flags=no-writes,allow-oom
-- queues: the queues of all apps.
--
-- KEYS[1]  queues   set
-- Returns  {queue, ...}

local queues = KEYS[1]
return redis.call('SMEMBERS', queues)
