-- Gives an executor back, once, however often and by whomever it is asked for.
-- KEYS     see pool.lua
-- ARGV[2]  executor    ARGV[3]  token    ARGV[4]  holder    ARGV[5]  name of this call
-- Returns {outcome, who holds the executor now or '', releases so far, µs since the first of
-- them, µs since the last}; the outcome is 'released', 'already released', how else the grant
-- had ended, 'stale' where that is forgotten, 'forged' where there was no such grant.
local executor, token, holder, call = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local grant = read(executor)
if is_of(grant, token, holder) then
  give_back(executor, grant, 'released', call)
  count('released')
  wake()
  return { 'released', '', 1, 0, 0 }
end

local function judge()
  local past, raw = find_ended(token)
  if past and past.executor == executor and past.holder == holder then
    if past.how ~= 'released' then
      count('stale')
      return { past.how, '', 0, 0, 0 }
    end
    if past.call == call then
      return { 'released', '', 1, 0, 0 } -- its answer was lost, and it asks again
    end
    local answer = { 'already released', '', past.times + 1,
      text(now_us - tonumber(past.first_us)), text(now_us - tonumber(past.last_us)) }
    past.times, past.last_us = past.times + 1, text(now_us)
    redis.call('ZREM', ended, raw)
    redis.call('ZADD', ended, token, cjson.encode(past))
    count('double_released')
    return answer
  end
  local oldest = tonumber(redis.call('ZRANGE', ended, 0, 0, 'WITHSCORES')[2])
  local is_full = redis.call('ZCARD', ended) >= MOST_ENDED
  if past or not is_full or tonumber(token) >= oldest then
    count('forged')
    return { 'forged', '', 0, 0, 0 }
  end
  count('stale')
  return { 'stale', '', 0, 0, 0 }
end

local answer = judge()
answer[2] = grant and grant.holder or ''
wake()
return answer
