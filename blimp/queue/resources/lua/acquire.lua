-- Gives an executor to a holder, the one it has already where it has one; or a place to wait.
-- Free ones belong to those who wait, in the order they came: who comes later gets one only
-- where there are more free than waiting.
-- KEYS     see pool.lua
-- ARGV[2]  holder    ARGV[3]  µs that the grant lasts
-- ARGV[4]  µs that its place lasts, 0 where it does not wait (any more); -1 where it wants
--          nothing any more, and only leaves the line
-- ARGV[5]  '1': what it has already gets a new token, and the old one is worth nothing
-- ARGV[6]  its rank among those of its name: with a new token, none takes from a higher one
-- Returns {1, executor, token, '1' where it had it already}; {2, executor} where one of a
-- higher rank has it;
-- or {0, how many are before it, how many executors there are}.
local holder, ttl_us, place_us = ARGV[2], ARGV[3], tonumber(ARGV[4])

local function grant_to(executor, grant)
  grant.ttl_us = ttl_us
  redis.call('HSET', executors, executor, cjson.encode(grant))
  redis.call('ZADD', due, text(now_us + tonumber(ttl_us)), executor)
end

if place_us < 0 then
  leave_line(holder)
  wake()
  return { 0, 0, redis.call('HLEN', executors) }
end

local own = redis.call('HGET', holders, holder)
local had = own and read(own)
if had and had.holder == holder then
  if ARGV[5] == '1' and rank_of(had) > tonumber(ARGV[6]) then
    wake()
    return { 2, own }
  end
  if ARGV[5] == '1' then
    had.rank = ARGV[6]
    remember(own, had, 'superseded')
    had.token = next_token()
    count('superseded')
  end
  grant_to(own, had)
  count('again')
  leave_line(holder)
  wake()
  return { 1, own, had.token, '1' }
end

local before = redis.call('ZRANK', waiting, holder) or redis.call('ZCARD', waiting)
if before < redis.call('ZCARD', free) then
  local executor = redis.call('ZPOPMIN', free)[1]
  local grant = { holder = holder, token = next_token(), since_us = text(now_us),
    rank = ARGV[6] }
  grant_to(executor, grant)
  redis.call('HSET', holders, holder, executor)
  count('acquired')
  leave_line(holder)
  wake()
  return { 1, executor, grant.token, '0' }
end

if place_us > 0 then
  if not redis.call('ZSCORE', waiting, holder) then
    local last = redis.call('ZRANGE', waiting, -1, -1, 'WITHSCORES')[2]
    redis.call('ZADD', waiting, text((tonumber(last) or 0) + 1), holder)
  end
  redis.call('ZADD', patience, text(now_us + place_us), holder)
else
  leave_line(holder)
  count('refused')
end
wake()
return { 0, before, redis.call('HLEN', executors) }
