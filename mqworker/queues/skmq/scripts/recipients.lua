#!lua flags=no-writes,allow-oom
-- recipients: all recipients of an app, for their pings and for the status.
--
-- KEYS[1]  recipients  hash   key -> 'status weight host port id'
-- Returns  {key, entry, ...}

local recipients = KEYS[1]
return redis.call('HGETALL', recipients)
