local MOST_FAILURES, LONGEST_ID = 10000, 255 -- so the index of failures stays below 4 MB

local function is_signed(record)
  return string.find(record, '"blimp_signature":"[%x ]+"}$')
end

-- Writes what became of a task, unless a final record is there: one that is signed, if this one is.
-- What is not signed is the refusal of a stranger's message, which may have any id. Put before scripts that end tasks.
-- key: celery-task-meta-<id>, key and channel; in a cluster the key has a hash tag before it. record: JSON. keep_s: seconds, "0" for ever.
-- Returns 1 if it was written, 0 if a final record stands.
-- The record is written byte for byte. Most tasks have none yet, so it is written first, and the
-- one before is looked at only if there is one.
local function store_result(key, record, keep_s)
  local expiry = keep_s ~= '0' and { 'EX', keep_s } or {}
  if not redis.call('SET', key, record, 'NX', unpack(expiry)) then
    local before = redis.call('GET', key)
    -- Both Celery and we write the status first. cjson cannot read every record: not one with a
    -- lone surrogate, or nested too deeply.
    local status = string.match(before, '^{"status": ?"(%u+)"')
    if not status then
      local readable, document = pcall(cjson.decode, before)
      status = readable and type(document) == 'table' and document['status']
    end
    if status == 'SUCCESS' or status == 'FAILURE' or status == 'REVOKED' then
      if is_signed(before) or not is_signed(record) then
        return 0
      end
    end
    redis.call('SET', key, record, unpack(expiry))
  end
  -- In a cluster its hash tag is before the key, and not in the channel.
  local id = string.match(key, 'celery%-task%-meta%-(.*)')
  local tag = string.sub(key, 1, -#id - 18)
  redis.call('PUBLISH', string.sub(key, #tag + 1), record)
  -- `encode` in protocol/record.py writes the status first: the record need not be parsed.
  if string.sub(record, 1, 19) == '{"status":"FAILURE"' then
    if #id <= LONGEST_ID then
      local failed, now = tag .. 'blimp:results:failed', redis.call('TIME')
      redis.call('ZADD', failed, string.format('%s.%06d', now[1], now[2]), id)
      redis.call('ZREMRANGEBYRANK', failed, 0, -MOST_FAILURES - 1)
      if keep_s ~= '0' then
        redis.call('ZREMRANGEBYSCORE', failed, '-inf', now[1] - keep_s)
      end
    end
  end
  return 1
end

-- Functions that count the parts of chords. canvas/chords.py and brokers/streams/complete.lua
-- add the calls. The keys and their content are Celery's, so that Celery's workers and ours can end
-- parts of the same chord:
--   j  sorted set: one entry per ended part, by its place     d  set of `<task id>:<place>`
--   s  number of parts     t  a correction to that number (Celery writes it)
--   c  ours: the part that has to start the body; 'done' after that, and nothing counts any more

-- Counts one part. Returns 2 if all have ended and this part has to start the body, else 1.
-- The same part counts once, and asked again gets the same answer.
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

-- Marks the body as started. Returns false if it was started before.
local function join_parts(j, t, s, d, c, done_s)
  if has_joined(c) then
    return false
  end
  redis.call('DEL', j, t, s, d)
  redis.call('SET', c, 'done', 'EX', done_s)
  return true
end

-- Writes the number of parts, once.
local function begin_chord(s, size, keep_s)
  redis.call('SET', s, size, 'NX')
  if keep_s ~= '0' then
    redis.call('EXPIRE', s, keep_s)
  end
end
