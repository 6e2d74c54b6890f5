-- report: appends events to the stream of the queue, one entry for a whole batch.
-- An entry carries n, the number of events, and the block: z (newline JSON, zlib, made by the client),
-- j (newline JSON) or e (ids of one task, enqueued). v lists the positions in the block, from 0, that did not happen after all.
-- Needs: keys.

local function append_block(kept, count, codec, block, void)
  kept = redis.call('HGET', meta, 'events_kept') or kept -- an archiver wants more kept than the cap would
  if #void == 0 then
    redis.call('XADD', events, 'MAXLEN', '~', kept, '*', 'n', count, codec, block)
  elseif #void < count then
    redis.call('XADD', events, 'MAXLEN', '~', kept, '*', 'n', count, codec, block, 'v', table.concat(void, ','))
  end
end

-- Events that only the script knows of, as a block of its own.
local function append_events(kept, happened)
  if #happened == 0 then return end
  local lines = {}
  for i, event in ipairs(happened) do lines[i] = cjson.encode(event) end
  append_block(kept, #happened, 'j', table.concat(lines, '\n'), {})
end
