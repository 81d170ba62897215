-- A pool of resources: which there are, who holds each, who waits for one.
-- KEYS     resources, free, due, holders, waiting, patience, ended, counts; see redis/keys.py
-- ARGV[1]  prefix of the channel on which a waiting holder is woken; the holder's name follows
-- ARGV[2]  the operation, a function of `operations` below
-- ARGV[3]  the caller's monotonic clock; see redis/clock.py. The operation's arguments follow
-- Returns what the operation returns.
-- The hash `resources` is the truth. free, due and holders are indexes of it, and are rebuilt
-- from it if they disagree. An operation may be repeated if its answer was lost.
local resources, free, due, holders = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local waiting, patience, ended, counts = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local MOST_AT_ONCE, MOST_ENDED, ENDED_OF_LIMIT = 1000, 1000, 20
local MOST = 2 ^ 53 -- a Lua number above it is not exact
local DAY_US = 86400000000 -- a token may be ahead of the time: one more than the last, at least

-- Checked before the first write: a script that fails half-way is not rolled back.
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

-- Returns the whole number in a text; nil if it is none, or too great.
local function whole(value)
  local number = type(value) == 'string' and value:match('^-?%d+$') and tonumber(value)
  return number and math.abs(number) < MOST and number or nil
end

local function counter(field)
  return whole(redis.call('HGET', counts, field)) or 0
end

local function count(field)
  if type(redis.pcall('HINCRBY', counts, field, 1)) == 'table' then
    redis.call('HSET', counts, field, 1) -- the field was not a number
  end
end

-- Never goes back, nor on by a step of the server's clock: a grant would last longer than its time
-- to live, or end while its holder relies on it.
local now_us = read_clock(counts, ARGV[3], false).steady

-- A token that the time cannot explain was not granted: without this bound, one that is forged
-- would leave none to grant that is greater.
local function is_forged(token)
  return token > now_us + DAY_US
end

local function last_token()
  local last = counter('token')
  return is_forged(last) and 0 or last
end

-- The first token is the time, too. So is the number of a command that is sent without a grant
-- (see blimp/tasks/authority.py) greater than any from before the server lost its data.
if last_token() <= 0 then
  redis.call('HSET', counts, 'token', text(now_us))
end

-- At least the time: tokens grow even if the server restarts without its last moments.
local function next_token()
  local token = text(math.max(last_token() + 1, now_us))
  redis.call('HSET', counts, 'token', token)
  return token
end

-- Returns the grant of a resource: nil if it is free, false if it is not in the pool.
local function read(resource)
  local value = redis.call('HGET', resources, resource)
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

-- Notes how a grant ended. call: names the release, so that its repetition is recognised.
local function note_end(resource, grant, how, call)
  redis.call('ZADD', ended, grant.token, cjson.encode({
    resource = resource, holder = grant.holder, how = how, call = call or '',
    first_us = text(now_us), last_us = text(now_us), times = 1,
  }))
  local most = counter('keep_s') > 0 and ENDED_OF_LIMIT or MOST_ENDED
  redis.call('ZREMRANGEBYRANK', ended, 0, -most - 1)
end

local has_changed = false -- a waiting holder may be served now

-- Ends the grant of a resource, which returns to the pool, or leaves it. Counts how.
local function end_grant(resource, grant, how, call)
  if redis.call('HGET', holders, grant.holder) == resource then
    redis.call('HDEL', holders, grant.holder)
  end
  redis.call('ZREM', due, resource)
  note_end(resource, grant, how, call)
  count((how:gsub(' ', '_')))
  if grant.is_leaving then
    redis.call('HDEL', resources, resource)
    count('removed')
  else
    redis.call('HSET', resources, resource, '')
    redis.call('ZADD', free, text(now_us), resource)
  end
  has_changed = true
end

local function stop_waiting(holder)
  redis.call('ZREM', patience, holder)
  if redis.call('ZREM', waiting, holder) == 1 then
    has_changed = true
  end
end

-- Rebuilds free, due and holders from the hash of resources.
local function repair()
  count('repaired')
  for _, resource in ipairs(redis.call('ZRANGE', free, 0, -1)) do
    redis.call('HSETNX', resources, resource, '')
  end
  for _, resource in ipairs(redis.call('ZRANGE', due, 0, -1)) do
    redis.call('HSETNX', resources, resource, '?') -- its holder is not known: held until due
  end
  redis.call('DEL', holders)
  for _, resource in ipairs(redis.call('HKEYS', resources)) do
    local grant = read(resource)
    if grant then
      redis.call('ZREM', free, resource)
      if not redis.call('ZSCORE', due, resource) then
        redis.call('ZADD', due, text(now_us + tonumber(grant.ttl_us)), resource)
      end
      redis.call('HSET', holders, grant.holder, resource)
    else
      redis.call('ZREM', due, resource)
      redis.call('ZADD', free, 'NX', text(now_us), resource)
    end
  end
  has_changed = true
end

-- Ends what is past its time. Every operation begins with it: there is no sweeper.
local function expire()
  if redis.call('HLEN', resources) ~= redis.call('ZCARD', free) + redis.call('ZCARD', due) then
    repair()
  end
  local late = redis.call('ZRANGE', due, '-inf', text(now_us), 'BYSCORE', 'LIMIT', 0, MOST_AT_ONCE)
  for _, resource in ipairs(late) do
    local grant = read(resource)
    if grant then
      end_grant(resource, grant, 'expired')
    else
      repair()
    end
  end
  local gone = redis.call('ZRANGE', patience, '-inf', text(now_us), 'BYSCORE',
    'LIMIT', 0, MOST_AT_ONCE)
  for _, holder in ipairs(gone) do
    stop_waiting(holder)
    count('gone')
  end
end

-- Wakes as many waiting holders as there are free resources. Every operation ends with it.
local function wake()
  local room = has_changed and redis.call('ZCARD', free) or 0
  if room > 0 then
    for _, holder in ipairs(redis.call('ZRANGE', waiting, 0, math.min(room, MOST_AT_ONCE) - 1)) do
      redis.call('PUBLISH', ARGV[1] .. holder, '')
    end
  end
end

local operations = {}

-- Adds a resource to the pool; one that was about to leave stays.
-- Returns 1 if it is new, 0 if it was there.
function operations.add(resource)
  local grant = read(resource)
  if grant == false then
    redis.call('HSET', resources, resource, '')
    redis.call('ZADD', free, text(now_us), resource)
    count('added')
    has_changed = true
  elseif grant and grant.is_leaving then
    grant.is_leaving = nil
    redis.call('HSET', resources, resource, cjson.encode(grant))
  end
  return grant == false and 1 or 0
end

-- Removes a resource; a busy one leaves when it is released, or with now = '1' at once.
-- Returns 'removed', 'leaving' or 'unknown'.
function operations.remove(resource, now)
  local grant = read(resource)
  if grant == nil then
    redis.call('HDEL', resources, resource)
    redis.call('ZREM', free, resource)
    count('removed')
    return 'removed'
  end
  if not grant then
    return 'unknown'
  end
  grant.is_leaving = true
  if now == '1' then
    end_grant(resource, grant, 'taken away')
    return 'removed'
  end
  redis.call('HSET', resources, resource, cjson.encode(grant))
  return 'leaving'
end

-- Grants a resource to a holder, the one it has already if it has one; or a place to wait.
-- Free resources belong to those who wait, in their order: a later holder gets one only if more
-- are free than holders wait.
-- ttl_us: how long the grant lasts. place_us: how long its place lasts; 0: it does not wait (any
-- more); -1: it wants nothing, and only leaves the line.
-- new_token: '1': what it has already gets a new token, and the old one is refused.
-- rank: of the request among those of this holder; with new_token, a lower rank than that of the
-- grant gets nothing.
-- Returns {1, resource, token, '1' if it had it already}; {2, resource} if a request of a higher
-- rank has it; or {0, how many wait before it, how many resources there are}.
-- size: of a pool that is a limit, how many there are: resources called 1, 2 and so on; '0' for
-- others. keep_s: such a pool is forgotten so long after its last use.
function operations.acquire(holder, ttl_us, place_us, new_token, rank, size, keep_s)
  place_us = tonumber(place_us)
  size = tonumber(size)
  if size > 0 then
    redis.call('HSET', counts, 'keep_s', keep_s)
    for number = size + 1, redis.call('HLEN', resources) do
      operations.remove(text(number), '0')
    end
    for number = 1, redis.call('HLEN', resources) < size and size or 0 do
      operations.add(text(number))
    end
  end
  local function grant_to(resource, grant)
    grant.ttl_us = ttl_us
    redis.call('HSET', resources, resource, cjson.encode(grant))
    redis.call('ZADD', due, text(now_us + tonumber(ttl_us)), resource)
    stop_waiting(holder)
  end

  if place_us < 0 then
    stop_waiting(holder)
    return { 0, 0, redis.call('HLEN', resources) }
  end

  local own = redis.call('HGET', holders, holder)
  local had = own and read(own)
  if had and had.holder == holder then
    if new_token == '1' and rank_of(had) > tonumber(rank) then
      return { 2, own }
    end
    if new_token == '1' then
      had.rank = rank
      note_end(own, had, 'superseded')
      had.token = next_token()
      count('superseded')
    end
    grant_to(own, had)
    count('again')
    return { 1, own, had.token, '1' }
  end

  if redis.call('ZCARD', free) == 0 then
    for _, one in ipairs(redis.call('ZRANGE', due, 0, 99)) do
      local grant = read(one)
      if grant and is_forged(whole(grant.token)) then
        end_grant(one, grant, 'taken away')
      end
    end
  end
  local before = redis.call('ZRANK', waiting, holder) or redis.call('ZCARD', waiting)
  if before < redis.call('ZCARD', free) then
    local resource = redis.call('ZPOPMIN', free)[1]
    local grant = { holder = holder, token = next_token(), since_us = text(now_us), rank = rank }
    grant_to(resource, grant)
    redis.call('HSET', holders, holder, resource)
    count('acquired')
    return { 1, resource, grant.token, '0' }
  end

  if place_us > 0 then
    if not redis.call('ZSCORE', waiting, holder) then
      local last = redis.call('ZRANGE', waiting, -1, -1, 'WITHSCORES')[2]
      redis.call('ZADD', waiting, text((tonumber(last) or 0) + 1), holder)
    end
    redis.call('ZADD', patience, text(now_us + place_us), holder)
  else
    stop_waiting(holder)
    count('refused')
  end
  return { 0, before, redis.call('HLEN', resources) }
end

-- Extends a grant to ttl_us from now, if it still stands.
-- Returns {1}; or {0, how it ended, who holds the resource now or ''}.
function operations.renew(resource, token, holder, ttl_us)
  local grant = read(resource)
  if is_of(grant, token, holder) then
    grant.ttl_us = ttl_us
    redis.call('HSET', resources, resource, cjson.encode(grant))
    redis.call('ZADD', due, text(now_us + tonumber(ttl_us)), resource)
    count('renewed')
    return { 1 }
  end
  local past = find_ended(token)
  count('lost')
  return { 0, past and past.how or 'unknown', grant and grant.holder or '' }
end

-- Releases a resource, once, however often it is asked for. call: names this request.
-- Returns {outcome, who holds the resource now or '', releases so far, µs since the first of
-- them, µs since the last}. The outcome is 'released', 'already released', how else the grant
-- had ended, 'stale' if that is forgotten, 'forged' if there was no such grant.
function operations.release(resource, token, holder, call)
  local grant = read(resource)
  if is_of(grant, token, holder) then
    end_grant(resource, grant, 'released', call)
    return { 'released', '', 1, 0, 0 }
  end
  local held_by = grant and grant.holder or ''
  local past, raw = find_ended(token)
  if not (past and past.resource == resource and past.holder == holder) then
    local oldest = tonumber(redis.call('ZRANGE', ended, 0, 0, 'WITHSCORES')[2])
    local is_full = redis.call('ZCARD', ended) >= MOST_ENDED
    local outcome = (past or not is_full or tonumber(token) >= oldest) and 'forged' or 'stale'
    count(outcome)
    return { outcome, held_by, 0, 0, 0 }
  end
  if past.how ~= 'released' then
    count('stale')
    return { past.how, held_by, 0, 0, 0 }
  end
  if past.call == call then
    return { 'released', held_by, 1, 0, 0 } -- the answer was lost, and the request repeated
  end
  local answer = { 'already released', held_by, past.times + 1,
    text(now_us - tonumber(past.first_us)), text(now_us - tonumber(past.last_us)) }
  past.times, past.last_us = past.times + 1, text(now_us)
  redis.call('ZREM', ended, raw)
  redis.call('ZADD', ended, token, cjson.encode(past))
  count('double_released')
  return answer
end

-- Releases whatever a holder has, unless a request of a higher rank has it; ends its waiting.
-- Returns the resource, '' if it had none.
function operations.dismiss(holder, rank)
  local resource = redis.call('HGET', holders, holder)
  local grant = resource and read(resource)
  stop_waiting(holder)
  if grant and grant.holder == holder and rank_of(grant) <= tonumber(rank) then
    end_grant(resource, grant, 'released')
    return resource
  end
  return ''
end

-- Ends the grant of a resource: its token is refused from now on, and its holder learns of it
-- at its next renewal. Returns the holder, '' if there was none.
function operations.take_away(resource)
  local grant = read(resource)
  if grant then
    end_grant(resource, grant, 'taken away')
  end
  return grant and grant.holder or ''
end

-- Raises the last token to at least the time. Returns it.
function operations.advance()
  local last = text(math.max(last_token(), now_us))
  redis.call('HSET', counts, 'token', last)
  return last
end

-- Describes the pool, or one resource of it ('' for all). to_repair: '1': rebuild the indexes.
-- Returns {counters, free, busy, waiting}: names and numbers in turn; resources; {resource,
-- holder, token, µs held, µs left, '1' if it leaves} of each; holders in order.
function operations.look(to_repair, resource)
  if to_repair == '1' then
    repair()
  end
  local busy = {}
  local shown = resource == '' and redis.call('ZRANGE', due, 0, -1) or { resource }
  for _, one in ipairs(shown) do
    local grant = read(one)
    if grant then
      local until_us = tonumber(redis.call('ZSCORE', due, one)) or now_us
      busy[#busy + 1] = { one, grant.holder, grant.token,
        text(now_us - tonumber(grant.since_us)), text(until_us - now_us),
        grant.is_leaving and '1' or '0' }
    end
  end
  if resource ~= '' then
    return { {}, {}, busy, {} }
  end
  return { redis.call('HGETALL', counts), redis.call('ZRANGE', free, 0, -1), busy,
    redis.call('ZRANGE', waiting, 0, -1) }
end

expire()
local answer = operations[ARGV[2]](unpack(ARGV, 4))
wake()
local keep_s = counter('keep_s')
if keep_s > 0 then
  for _, key in ipairs(KEYS) do
    redis.call('EXPIRE', key, keep_s)
  end
end
return answer
