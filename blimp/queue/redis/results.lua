local MOST_FAILURES, LONGEST_ID = 10000, 255 -- so the index of failures stays below 4 MB

-- Writes what became of a task, unless a final record is there. Put before scripts that end tasks.
-- key: celery-task-meta-<id>, key and channel. record: JSON. keep_s: seconds, "0" for ever.
-- Returns 1 if it was written, 0 if a final record stands.
-- cjson only judges: the record is written byte for byte. Most tasks have no record yet, so it is
-- written first, and looked at only if there is one.
local function store_result(key, record, keep_s)
  local written
  if keep_s == '0' then
    written = redis.call('SET', key, record, 'NX')
  else
    written = redis.call('SET', key, record, 'NX', 'EX', keep_s)
  end
  if not written then
    local readable, before = pcall(cjson.decode, redis.call('GET', key))
    if readable and type(before) == 'table' then
      local status = before['status']
      if status == 'SUCCESS' or status == 'FAILURE' or status == 'REVOKED' then
        return 0
      end
    end
    if keep_s == '0' then
      redis.call('SET', key, record)
    else
      redis.call('SET', key, record, 'EX', keep_s)
    end
  end
  redis.call('PUBLISH', key, record)
  -- `encode` in protocol/record.py writes the status first: the record need not be parsed.
  if string.sub(record, 1, 19) == '{"status":"FAILURE"' then
    local id = string.sub(key, 18)
    if #id <= LONGEST_ID then
      local failed, now_s = 'blimp:results:failed', redis.call('TIME')[1]
      redis.call('ZADD', failed, now_s, id)
      redis.call('ZREMRANGEBYRANK', failed, 0, -MOST_FAILURES - 1)
      if keep_s ~= '0' then
        redis.call('ZREMRANGEBYSCORE', failed, '-inf', now_s - keep_s)
      end
    end
  end
  return 1
end

