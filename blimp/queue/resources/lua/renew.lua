-- Has a grant last on, where it is still the one.
-- KEYS     see pool.lua
-- ARGV[2]  executor    ARGV[3]  token    ARGV[4]  holder    ARGV[5]  µs that it lasts from now
-- Returns {1}; or {0, how it ended, who holds the executor now or ''}.
local executor, token, holder = ARGV[2], ARGV[3], ARGV[4]
local grant = read(executor)
if is_of(grant, token, holder) then
  grant.ttl_us = ARGV[5]
  redis.call('HSET', executors, executor, cjson.encode(grant))
  redis.call('ZADD', due, text(now_us + tonumber(ARGV[5])), executor)
  count('renewed')
  wake()
  return { 1 }
end
local past = find_ended(token)
count('lost')
wake()
return { 0, past and past.how or 'unknown', grant and grant.holder or '' }
