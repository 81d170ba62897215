-- Has an executor belong to the pool; one that was to leave it stays.
-- KEYS     see pool.lua
-- ARGV[2]  executor
-- Returns 1 where it is new, 0 where it was there.
local executor = ARGV[2]
local grant = read(executor)
if grant == false then
  redis.call('HSET', executors, executor, '')
  redis.call('ZADD', free, text(now_us), executor)
  count('added')
  has_changed = true
elseif grant and grant.is_leaving then
  grant.is_leaving = nil
  redis.call('HSET', executors, executor, cjson.encode(grant))
end
wake()
return grant == false and 1 or 0
