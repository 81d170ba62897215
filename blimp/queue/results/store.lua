-- Writes what became of a task, unless something final is known already.
-- KEYS[1]  celery-task-meta-<id>, key and channel
-- ARGV[1]  the record, JSON
-- ARGV[2]  seconds to keep it, 0 for ever
-- Returns 1 when written, 0 when a final record stands.
-- cjson only judges here; what is written is ARGV[1] as it came, byte for byte.
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
return 1
