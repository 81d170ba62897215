-- What every script of a pool begins with: the pool's clock, and what expires on it.
-- KEYS     executors, free, due, holders, waiting, patience, ended, counts; see keys.py
-- ARGV[1]  what the channel of every waiter begins with
-- The hash of executors is the truth; free, due and holders are ways to look into it, and
-- made anew from it where they do not agree.
local executors, free, due, holders = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local waiting, patience, ended, counts = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local MOST_AT_ONCE, MOST_ENDED = 1000, 1000
local MOST = 2 ^ 53 -- above that numbers have gaps

-- Before anything is written: a script that fails half-way is not undone.
for number, kind in ipairs({ 'hash', 'zset', 'zset', 'hash', 'zset', 'zset', 'zset', 'hash' }) do
  local found = redis.call('TYPE', KEYS[number]).ok
  if found ~= kind and found ~= 'none' then
    return redis.error_reply('POOLTYPE ' .. KEYS[number] .. ' is a ' .. found
      .. ', must be a ' .. kind)
  end
end

local function text(number)
  return string.format('%.0f', number)
end

-- Returns a whole number that was written as text; nil for what is none, or too great.
local function whole(value)
  local number = type(value) == 'string' and value:match('^-?%d+$') and tonumber(value)
  return number and math.abs(number) < MOST and number or nil
end

local function known(field)
  return whole(redis.call('HGET', counts, field)) or 0
end

local function count(field)
  if type(redis.pcall('HINCRBY', counts, field, 1)) == 'table' then
    redis.call('HSET', counts, field, 1) -- what stood there was no number
  end
end

-- Microseconds that never go back: a server's clock may, and grants would last for ever.
local function read_clock()
  local time = redis.call('TIME')
  local last, ahead = known('last_us'), known('ahead_us')
  local now = time[1] * 1000000 + time[2] + ahead
  if now < last then
    redis.call('HSET', counts, 'ahead_us', text(ahead + last - now))
    now = last
  end
  redis.call('HSET', counts, 'last_us', text(now))
  return now
end
local now_us = read_clock()

-- It begins at the time, too: by it whoever acts for nobody's grant (see authority.py) is later
-- than what was seen before the server lost its data.
if known('token') <= 0 then
  redis.call('HSET', counts, 'token', text(now_us))
end

-- At least the time: it grows on also where the server came back without its last moments.
local function next_token()
  local token = text(math.max(known('token') + 1, now_us))
  redis.call('HSET', counts, 'token', token)
  return token
end

-- Returns the grant of an executor: nil where it is free, false where it is not in the pool.
local function read(executor)
  local value = redis.call('HGET', executors, executor)
  if not value then
    return false
  end
  if value == '' then
    return nil
  end
  local readable, grant = pcall(cjson.decode, value)
  if readable and type(grant) == 'table' and type(grant.holder) == 'string'
    and whole(grant.token) and whole(grant.ttl_us) and whole(grant.since_us) then
    return grant
  end
  return { holder = '?', token = '0', ttl_us = '0', since_us = text(now_us) }
end

local function rank_of(grant)
  return whole(grant.rank) or 0
end

local function is_of(grant, token, holder)
  return grant and grant.token == token and grant.holder == holder
end

local ENDS = { released = true, expired = true, superseded = true, ['taken away'] = true }

local function find_ended(token)
  local found = redis.call('ZRANGE', ended, token, token, 'BYSCORE', 'LIMIT', 0, 1)[1]
  local readable, past = pcall(cjson.decode, found or '')
  if readable and type(past) == 'table' and ENDS[past.how] and type(past.times) == 'number'
    and whole(past.first_us) and whole(past.last_us) then
    return past, found
  end
end

-- Remembers how a grant ended. call: of whoever ended it, to know him when he asks again.
local function remember(executor, grant, how, call)
  redis.call('ZADD', ended, grant.token, cjson.encode({
    executor = executor, holder = grant.holder, how = how, call = call or '',
    first_us = text(now_us), last_us = text(now_us), times = 1,
  }))
  redis.call('ZREMRANGEBYRANK', ended, 0, -MOST_ENDED - 1)
end

local has_changed = false -- something that a waiter may have waited for

-- Ends the grant of an executor, which goes back into the pool, or out of it.
local function give_back(executor, grant, how, call)
  if redis.call('HGET', holders, grant.holder) == executor then
    redis.call('HDEL', holders, grant.holder)
  end
  redis.call('ZREM', due, executor)
  remember(executor, grant, how, call)
  if grant.is_leaving then
    redis.call('HDEL', executors, executor)
    count('removed')
  else
    redis.call('HSET', executors, executor, '')
    redis.call('ZADD', free, text(now_us), executor)
  end
  has_changed = true
end

local function leave_line(holder)
  redis.call('ZREM', patience, holder)
  if redis.call('ZREM', waiting, holder) == 1 then
    has_changed = true
  end
end

-- Has free, due and holders say again what the hash of executors says.
local function repair()
  count('repaired')
  for _, executor in ipairs(redis.call('ZRANGE', free, 0, -1)) do
    redis.call('HSETNX', executors, executor, '')
  end
  for _, executor in ipairs(redis.call('ZRANGE', due, 0, -1)) do
    redis.call('HSETNX', executors, executor, '?') -- held by nobody knows whom, until it is due
  end
  redis.call('DEL', holders)
  for _, executor in ipairs(redis.call('HKEYS', executors)) do
    local grant = read(executor)
    if grant then
      redis.call('ZREM', free, executor)
      if not redis.call('ZSCORE', due, executor) then
        redis.call('ZADD', due, text(now_us + tonumber(grant.ttl_us)), executor)
      end
      redis.call('HSET', holders, grant.holder, executor)
    else
      redis.call('ZREM', due, executor)
      redis.call('ZADD', free, 'NX', text(now_us), executor)
    end
  end
  has_changed = true
end

local function agree()
  return redis.call('HLEN', executors) == redis.call('ZCARD', free) + redis.call('ZCARD', due)
end

-- Ends what is past its time. Whoever comes does it first, whatever he came for.
local function heal()
  if not agree() then
    repair()
  end
  local late = redis.call('ZRANGE', due, '-inf', text(now_us), 'BYSCORE', 'LIMIT', 0, MOST_AT_ONCE)
  for _, executor in ipairs(late) do
    local grant = read(executor)
    if grant then
      give_back(executor, grant, 'expired')
      count('expired')
    else
      repair()
    end
  end
  local gone = redis.call('ZRANGE', patience, '-inf', text(now_us), 'BYSCORE',
    'LIMIT', 0, MOST_AT_ONCE)
  for _, holder in ipairs(gone) do
    leave_line(holder)
    count('gone')
  end
end

-- Wakes as many of those who wait as may have something now.
local function wake()
  local room = has_changed and redis.call('ZCARD', free) or 0
  if room > 0 then
    for _, holder in ipairs(redis.call('ZRANGE', waiting, 0, math.min(room, MOST_AT_ONCE) - 1)) do
      redis.call('PUBLISH', ARGV[1] .. holder, '')
    end
  end
end

heal()
