-- Has an executor belong to the pool no more; a busy one leaves when it is given back.
-- KEYS     see pool.lua
-- ARGV[2]  executor    ARGV[3]  '1': it is taken from its holder, and leaves now
-- Returns 'removed', 'leaving' or 'unknown'.
local executor = ARGV[2]
local grant = read(executor)
local answer = 'unknown'
if grant == nil then
  redis.call('HDEL', executors, executor)
  redis.call('ZREM', free, executor)
  count('removed')
  answer = 'removed'
elseif grant then
  grant.is_leaving = true
  if ARGV[3] == '1' then
    give_back(executor, grant, 'taken away')
    count('taken_away')
    answer = 'removed'
  else
    redis.call('HSET', executors, executor, cjson.encode(grant))
    answer = 'leaving'
  end
end
wake()
return answer
