-- reclaim: a consumer's record and what it held.
-- Needs: clock, gq_queue, gq_end.

-- Queue again what a consumer held; what has no tries left fails.
local function reclaim_from(consumer, max_retries)
  for _, entry in ipairs(redis.call('ZRANGE', owned, '[' .. consumer .. '.', '(' .. consumer .. '/', 'BYLEX')) do
    local record = read_record(string.match(entry, ' (%d+)$'))
    if not record then
      redis.call('ZREM', owned, entry)
    elseif has_tries_left(record, max_retries) then
      queue_again(record)
      record.claim = '0' -- a late result of the dead one is lost
      write_record(record)
    else
      finish(record, 'failed', 'retries')
    end
  end
end

local function delete_consumer(consumer)
  redis.call('ZREM', births, consumer)
  redis.call('ZREM', beats, consumer)
  redis.call('HDEL', meta, 'claim:' .. consumer)
end
