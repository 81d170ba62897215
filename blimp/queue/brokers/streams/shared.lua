-- Functions that several scripts use: put before each script of this folder.

-- Says whether a script is given no key here: "", in a cluster with a hash tag before it.
local function is_none(key)
  return key == '' or string.match(key, '^{[^}]*}$') ~= nil
end

-- Returns a whole number as a command takes it: Redis 7.2 itself makes 1e+9 of one with eight zeros.
local function text(number)
  return string.format('%.0f', number)
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

-- Wakes all that wait, 64 at most.
local function ring_for_all(bell)
  local consumers = redis.pcall('XINFO', 'CONSUMERS', bell, GROUP)
  for _ = 1, consumers.err and 0 or math.min(64, #consumers) do
    ring(bell)
  end
end

local function server_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Has keys of a queue expire when the queue does. key: any of the queue.
local function expire_with_queue(key, keys)
  local left_ms = redis.call('PTTL', (string.gsub(key, '[^:]+$', 'alive')))
  for _, one in ipairs(left_ms > 0 and keys or {}) do
    redis.call('PEXPIRE', one, text(left_ms))
  end
end

-- The claims of unique tasks, of one queue: `unique` is a hash, of each claim's digest "<ends, ms> <id>
-- <task>", 0 for no end by time; `unique_ends` is a sorted set of the claims that end by time.
local function claim_keys(key, queue)
  local unique = string.match(key, '^.-:queue:') .. queue .. ':unique'
  return unique, unique .. '_ends'
end

-- Returns the id of the task that has a claim, nil if none has.
local function claimed_by(unique, digest)
  local found = redis.call('HGET', unique, digest)
  local ends_ms, id = string.match(found or '', '^(%d+) ([^\n]+)')
  if id and (ends_ms == '0' or tonumber(ends_ms) > server_ms()) then
    return id
  end
end

-- Gives a claim to a task. lasts: ms, or no number if it ends with the task. Forgets some that have ended.
local FORGOTTEN = 16
local function claim(unique, ends, digest, lasts, id, task)
  local now_ms, ends_ms = server_ms(), 0
  for _, old in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', now_ms, 'LIMIT', 0, FORGOTTEN)) do
    redis.call('HDEL', unique, old)
    redis.call('ZREM', ends, old)
  end
  if tonumber(lasts) then
    ends_ms = now_ms + lasts
    redis.call('ZADD', ends, text(ends_ms), digest)
  else
    redis.call('ZREM', ends, digest)
  end
  redis.call('HSET', unique, digest, text(ends_ms) .. ' ' .. id .. '\n' .. task)
  expire_with_queue(unique, { unique, ends })
end

-- Frees a claim, if it is this task's.
local function free_claim(unique, ends, digest, id)
  if claimed_by(unique, digest) == id then
    redis.call('HDEL', unique, digest)
    redis.call('ZREM', ends, digest)
  end
end

-- Returns the headers of a message with a claim, and what the claim is: how long it lasts, its digest,
-- its queue; nil for most. head: its field `h`.
local function claim_in(head)
  if string.find(head, '"blimp_unique":', 1, true) then
    local readable, document = pcall(cjson.decode, head)
    local headers = readable and type(document) == 'table' and document.headers
    if type(headers) == 'table' and type(headers.blimp_unique) == 'string' then
      return headers, string.match(headers.blimp_unique, '^(%w+):(%x+):(.+)$')
    end
  end
end

-- Frees the claim of a message that never runs again. key: any of its queue. Its head names the
-- claim's queue, and who wrote it may have named one that this user may not touch.
local function free_claim_of(key, fields)
  local headers, lasts, digest, queue = claim_in(fields[2])
  if lasts then
    local unique, ends = claim_keys(key, queue)
    pcall(free_claim, unique, ends, digest, headers.id)
  end
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

-- Returns the keys of the places, of each tenant's next start, of the messages, and of the places
-- of those that are set aside, from that of the schedule.
local function turn_keys(later)
  local queue = string.gsub(later, 'later$', '')
  return queue .. 'turns', queue .. 'tenants', queue .. 'messages', queue .. 'aside'
end

local function turns_of(level)
  return text(level * LEVEL_STEP), string.format('(%.0f', (level + 1) * LEVEL_STEP)
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
  local turns, _, messages, aside = turn_keys(later)
  local packed = redis.call('HGET', messages, member)
  redis.call('HDEL', messages, member)
  local removed = redis.call('ZREM', turns, member) + redis.call('ZREM', aside, member)
  return removed == 1 and packed
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
  expire_with_queue(later, { turns, tenants, messages, clock })
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
    free_claim_of(stream, found[1][2])
    local letters, bytes = string.match(limit, '(%d+):(%d+)')
    redis.call('XADD', dead, 'MAXLEN', '~', letters, '*', 'reason', reason, 'level', level,
      'deliveries', deliveries, 'entry', id, unpack(found[1][2]))
    local left_ms = redis.call('PTTL', stream)
    if left_ms > 0 then
      redis.call('PEXPIRE', dead, text(left_ms)) -- its queue expires: so does all that it has
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
