-- Writes the record of a task, unless a final one is there.
-- KEYS[1]  celery-task-meta-<id>, key and channel
-- ARGV[1]  the record, JSON
-- ARGV[2]  seconds to keep it, 0 for ever
-- Returns 1 if it was written, 0 if a final record is there.
-- What is written is ARGV[1] as it came, byte for byte: cjson only reads the stored record.
-- The script is also a function inside complete.lua, which passes the same KEYS and ARGV.
local MOST_FAILURES, LONGEST_ID = 10000, 255 -- so the index of failures stays below 4 MB
local known = redis.call('GET', KEYS[1])
if known then
  local readable, record = pcall(cjson.decode, known)
  if readable and type(record) == 'table' then
    local status = record['status']
    if status == 'SUCCESS' or status == 'FAILURE' or status == 'REVOKED' then
      return 0
    end
  end
end
if ARGV[2] == '0' then
  redis.call('SET', KEYS[1], ARGV[1])
else
  redis.call('SETEX', KEYS[1], ARGV[2], ARGV[1])
end
redis.call('PUBLISH', KEYS[1], ARGV[1])
-- `encode` in protocol/record.py writes the status first: the record need not be parsed.
if string.sub(ARGV[1], 1, 19) == '{"status":"FAILURE"' then
  local id = string.sub(KEYS[1], 18)
  if #id <= LONGEST_ID then
    local failed, now_s = 'blimp:results:failed', redis.call('TIME')[1]
    redis.call('ZADD', failed, now_s, id)
    redis.call('ZREMRANGEBYRANK', failed, 0, -MOST_FAILURES - 1)
    if ARGV[2] ~= '0' then
      redis.call('ZREMRANGEBYSCORE', failed, '-inf', now_s - ARGV[2])
    end
  end
end
return 1
