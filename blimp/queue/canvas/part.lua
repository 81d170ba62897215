-- Put before the scripts that count the parts of a chord. The keys are Celery's, and so is what
-- stands in them, so that its workers and ours may end parts of one chord:
--   j  sorted set of the parts that are told, by their place      d  set of `<task id>:<place>`
--   s  how many there are to be, t a difference to that (Celery's)
--   c  who is to begin the body; 'done' once that is so: nothing counts any more then
-- Returns 2 where all are there and this part is to begin the body, else 1.
-- Told again, a part counts once, and the one that was to begin the body still is.
local function count_part(j, t, s, d, c, member, place, entry, keep_s)
  local known, claim = redis.call('GET', c), 'blimp:' .. member
  if known and known ~= claim then
    return 1
  end
  if redis.call('SISMEMBER', d, member) == 0 then
    redis.call('ZADD', j, place, entry)
    redis.call('SADD', d, member)
  end
  if keep_s ~= '0' then
    for _, key in ipairs({ j, t, s, d }) do
      redis.call('EXPIRE', key, keep_s)
    end
  end
  local size, more = redis.call('GET', s), redis.call('GET', t) or 0
  if not size then
    return 1
  end
  if not tonumber(size) or not tonumber(more) then
    error({ err = 'ERR ' .. s .. ' is no number' })
  end
  if redis.call('ZCARD', j) < tonumber(size) + tonumber(more) then
    return 1
  end
  redis.call('SET', c, claim)
  redis.call('EXPIRE', c, keep_s ~= '0' and keep_s or 86400)
  return 2
end

local function has_joined(c)
  return redis.call('GET', c) == 'done'
end

-- Notes that the body has begun; false where that was so before.
local function join_parts(j, t, s, d, c, done_s)
  if has_joined(c) then
    return false
  end
  redis.call('DEL', j, t, s, d)
  redis.call('SET', c, 'done', 'EX', done_s)
  return true
end

-- Says of how many parts a chord is, once.
local function begin_chord(s, size, keep_s)
  redis.call('SET', s, size, 'NX')
  if keep_s ~= '0' then
    redis.call('EXPIRE', s, keep_s)
  end
end

