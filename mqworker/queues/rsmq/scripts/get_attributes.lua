#!lua flags=no-writes,allow-oom
-- get_attributes: getQueueAttributes of RSMQ.
--
-- KEYS     as in parts/queue.lua
-- Returns  as in parts/attributes.lua, or 'queueNotFound'
-- Repeatable: it only reads, in a script because hidden is what the server's clock says.

-- @include clock
-- @include queue
-- @include attributes

if not queue_settings() then return 'queueNotFound' end
return attributes()
