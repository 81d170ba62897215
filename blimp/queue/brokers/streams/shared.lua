-- Functions that several scripts use: put before each script of this folder.

-- Says whether a script is given no key here: "", in a cluster with a hash tag before it.
local function is_none(key)
  return key == '' or string.match(key, '^{[^}]*}$') ~= nil
end

-- Wakes a waiting reader: it looks at more than its priority streams then.
local function ring(bell)
  local done = redis.pcall('XADD', bell, 'MAXLEN', '~', 64, '*', 'r', '')
  if done.err then
    if done.err:find('exhausted') then -- it has given its last id, and takes no entry
      redis.call('DEL', bell)
    end
    redis.call('XADD', bell, '*', 'r', '')
  end
end

local function server_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Puts one message, the fields of an entry, into the schedule. due_ms: on the server's clock.
local function schedule(later, bell, level, due_ms, message)
  -- The schedule is on the queue's steady clock, so that no step of the server's moves all of it.
  local clock = redis.call('HMGET', (string.gsub(later, 'later$', 'clock')), 'wall', 'steady')
  if tonumber(clock[1]) and tonumber(clock[2]) then
    due_ms = due_ms - math.floor((clock[1] - clock[2]) / 1000)
  end
  local member = cmsgpack.pack({ tonumber(level), message })
  redis.call('ZADD', later, due_ms, member)
  if redis.call('ZRANGE', later, 0, 0)[1] == member then
    ring(bell) -- a reader sleeps too long now
  end
end

-- The messages of tenants wait until a take has room for them: each in a hash, and its place, a
-- short name, in a sorted set, as a script that reads a member copies all of it. The score is a
-- virtual start time: that of the message that is next, or the end of the tenant's last message if
-- that is later; each message lasts 1. So tenants that wait get equal shares: start-time fair
-- queueing (Goyal, Vin and Cheng, 1996).
local LEVEL_STEP = 2 ^ 50 -- between the scores of two priorities; all of them are exact

-- Returns the keys of the places, of each tenant's next start, and of the messages, from that of
-- the schedule.
local function turn_keys(later)
  local queue = string.gsub(later, 'later$', '')
  return queue .. 'turns', queue .. 'tenants', queue .. 'messages'
end

local function turns_of(level)
  return string.format('%.0f', level * LEVEL_STEP), string.format('(%.0f', (level + 1) * LEVEL_STEP)
end

-- Returns the start of the next message of a priority. Forgets each tenant whose next message
-- would start there without its note, too.
local function virtual_time(turns, tenants, level)
  local least, below = turns_of(level)
  local next = redis.call('ZRANGE', turns, least, below, 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')[2]
  redis.call('ZREMRANGEBYSCORE', tenants, least, next or below)
  return tonumber(next or least)
end

-- Removes a place and its message. Returns the message, packed, or false if it is not there.
local function remove_turn(later, member)
  local turns, _, messages = turn_keys(later)
  local packed = redis.call('HGET', messages, member)
  redis.call('HDEL', messages, member)
  return redis.call('ZREM', turns, member) == 1 and packed
end

-- When a message with this place came, ms on the server's clock.
local function came_ms(member)
  return tonumber(string.match(member, '%d+$'))
end

-- Wakes a reader, unless one is being woken: it wakes the next one if it leaves messages. One that
-- has not taken for WAKING_MS since it was woken may be dead, or stand still.
local WAKING_MS = 50
local function ring_once(bell)
  local newest = redis.call('XREVRANGE', bell, '+', '-', 'COUNT', 1)[1]
  if newest then
    local read = redis.pcall('XPENDING', bell, GROUP, newest[1], newest[1], 1)
    if read.err or not read[1] or read[1][3] <= WAKING_MS then
      return
    end
  end
  ring(bell)
end

-- Puts one message, the fields of an entry, into its priority stream, or has it wait for the turn
-- of its tenant, the field `f`.
local function place(level_stream, later, bell, level, message)
  if message[5] ~= 'f' then
    redis.call('XADD', level_stream, '*', unpack(message))
    return
  end
  local turns, tenants, messages = turn_keys(later)
  local clock = string.gsub(later, 'later$', 'clock')
  local number = redis.call('HINCRBY', clock, 'turn', 1)
  local member = string.format('%016.0f:%.0f', number, server_ms()) -- ties by arrival
  local tenant = level .. ':' .. message[6]
  local start = tonumber(redis.call('ZSCORE', tenants, tenant)) or 0
  start = math.max(start, virtual_time(turns, tenants, level))
  redis.call('HSET', messages, member, cmsgpack.pack({ tonumber(level), message }))
  redis.call('ZADD', turns, start, member)
  redis.call('ZADD', tenants, start + 1, tenant)
  local left_ms = redis.call('PTTL', (string.gsub(later, 'later$', 'alive')))
  if left_ms > 0 then -- they go with their queue
    for _, key in ipairs({ turns, tenants, messages, clock }) do
      redis.call('PEXPIRE', key, left_ms)
    end
  end
  ring_once(bell)
end

-- Puts one message where it waits: into the schedule if `due_ms`, on the server's clock, is still
-- to come. tenant: "" for none. ttl_ms: nil or "" if it may wait for ever.
local function enqueue(level_stream, later, bell, level, due_ms, head, body, tenant, ttl_ms)
  local message = { 'h', head, 'b', body }
  if tenant ~= '' then
    message[5], message[6] = 'f', tenant
  elseif ttl_ms and ttl_ms ~= '' then
    message[5], message[6] = 'x', ttl_ms
  end
  if due_ms > server_ms() then
    schedule(later, bell, level, due_ms, message)
  else
    place(level_stream, later, bell, level, message)
  end
end

-- Says who holds a delivery.
-- Returns 1 if `consumer` holds entry `id` as its `fence`-th delivery, -1 if another delivery of
-- it is in flight or waits, 0 if it was completed or never delivered.
local function held(stream, group, consumer, id, fence)
  local pending = redis.pcall('XPENDING', stream, group, id, id, 1)
  if pending.err or not pending[1] then
    return 0
  end
  if pending[1][2] == consumer and pending[1][4] == tonumber(fence) then
    return 1
  end
  return -1
end

-- Moves entry `id` to the stream of dead letters, its reason with it.
-- limit: "<letters>:<bytes>" that are kept; the oldest go, the newest stays whatever its size.
local function dead_letter(stream, group, id, dead, limit, level, deliveries, reason)
  local found = redis.call('XRANGE', stream, id, id)
  if found[1] then
    local letters, bytes = string.match(limit, '(%d+):(%d+)')
    redis.call('XADD', dead, 'MAXLEN', '~', letters, '*', 'reason', reason, 'level', level,
      'deliveries', deliveries, 'entry', id, unpack(found[1][2]))
    local left_ms = redis.call('PTTL', stream)
    if left_ms > 0 then
      redis.call('PEXPIRE', dead, left_ms) -- its queue expires: so does all that it has
    end
    local count = redis.call('XLEN', dead)
    while count > 1 and redis.call('MEMORY', 'USAGE', dead, 'SAMPLES', 64) > tonumber(bytes) do
      count = math.max(1, math.floor(count * 0.9))
      redis.call('XTRIM', dead, 'MAXLEN', count)
    end
  end
  redis.call('XACK', stream, group, id)
  redis.call('XDEL', stream, id)
end
