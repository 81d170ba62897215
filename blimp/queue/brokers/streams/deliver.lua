-- Scripts that deliver messages and keep deliveries. "--- NAME" begins a script. A full server
-- allows them: it would never become empty again otherwise.

local FOREVER_MS = '1000000000' -- the idle time of what nobody holds; as `text` has it

-- Returns the fields of an entry as they are `ms` later: its time to live is shorter.
local function aged(fields, ms)
  for n = 5, #fields, 2 do
    if fields[n] == 'x' and tonumber(fields[n + 1]) then
      fields[n + 1] = text(math.max(0, fields[n + 1] - ms))
    end
  end
  return fields
end

-- Forgets consumers that hold nothing: the one named `leaving` ("" for none) and those silent for
-- `silent_ms`.
-- Removing a consumer drops what it has pending, so only those with nothing are removed.
local function forget(streams, group, leaving, silent_ms)
  for _, stream in ipairs(streams) do
    local consumers = redis.pcall('XINFO', 'CONSUMERS', stream, group)
    if not consumers.err then
      for _, flat in ipairs(consumers) do
        local one = {}
        for n = 1, #flat, 2 do
          one[flat[n]] = flat[n + 1]
        end
        if one.pending == 0 and (one.name == leaving or one.idle > tonumber(silent_ms)) then
          redis.call('XGROUP', 'DELCONSUMER', stream, group, one.name)
        end
      end
    end
  end
end

--- take
#!lua flags=allow-oom
-- Delivers up to `room` messages and records them as held, in one step:
-- 1. what is due moves from the schedule into its stream, or waits for its tenant's turn; what was
--    set aside moves there if this consumer knows its task, or its time is over;
-- 2. priority by priority, what was put back or whose holder is dead, then what is new, then what
--    is next of tenants: it moves into its stream now, so nothing there waits before another's turn;
-- 3. what was delivered too often goes to the dead letters instead, and so does what is older
--    than its own time to live; what is older than its queue's is dropped.
-- KEYS     for each queue: one stream per priority, bell, schedule, dead letters, time to live,
--          clock
-- ARGV[1]  group    ARGV[2]  consumer    ARGV[3]  room    ARGV[4]  lease, ms
-- ARGV[5]  most deliveries    ARGV[6]  dead letters to keep, "<letters>:<bytes>"
-- ARGV[7]  number of priorities
-- ARGV[8]  ms before it is due that a message may leave the schedule
-- ARGV[9]  the name of no consumer    ARGV[10] the caller's monotonic clock; see redis/clock.py
--          then the tasks that the consumer knows, each as name, version
-- Returns {server's ms, ms when the next one is due or -1, deliveries, how many had expired, 1 if
-- something is set aside}; a delivery is {number of its queue, priority, entry id, fence, fields}. Of a queue that is paused,
-- see the script `pause`, nothing is taken but what is in its first priority, emergencies.
-- What was delivered more than half as often as it may be is delivered alone: it may be what
-- kills its holders, and whatever they hold beside it is counted too.
-- What the consumer itself holds is never taken here, however idle: a holder that was
-- stopped for a while and wakes must find its own messages its own, not new ones.
-- Nor is anything taken from a holder for one lease after the server's clock jumped, or after
-- nobody looked for long, as when the server stood still: idle time says nothing then, and each
-- living holder renews meanwhile.
local group, consumer, room, lease_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local most, limit, levels = tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7])
local SWEEP, nobody = 100, ARGV[9]
local stride = levels + 5
local queues = #KEYS / stride
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local next_due_ms = -1
local taken, expired = {}, 0
local ttl_ms = {} -- of each queue, false for ever
local may_claim, ahead, paused = {}, {}, {} -- of each queue: see look_at_clock
local has_turns = {} -- of each queue
local has_aside = 0
local versions = {} -- of each task that is known
for n = 11, #ARGV, 2 do
  versions[ARGV[n]] = ARGV[n + 1]
end

local function pending(stream, ...)
  local found = redis.pcall('XPENDING', stream, group, ...)
  if found.err then
    redis.call('XGROUP', 'CREATE', stream, group, '0', 'MKSTREAM')
    return {}
  end
  return found
end

-- Reads the clock of a queue. Returns its steady ms, and notes whether idle times can be judged,
-- and whether some may have been stamped by a clock that was ahead.
local function look_at_clock(queue, key, bell)
  local clock = read_clock(key, ARGV[10], true)
  local kept = redis.call('HMGET', key, 'held', 'ahead', 'silent', 'paused')
  local function past(text) -- damaged, it may be of a time to come
    local at_us = tonumber(text)
    return at_us and at_us <= clock.before and at_us or nil
  end
  local held, silent = past(kept[1]), past(kept[3])
  local lease_us = lease_ms * 1000
  -- Idle, it looks thrice a lease. While it waits already, it waits longer only for what can cost a
  -- living holder its lease, which is renewed every quarter of one.
  local is_waiting = held and clock.before < held + lease_us
  local silence_us = math.max(lease_us * (is_waiting and 2 / 3 or 1 / 2), STEP_US)
  -- A caller that is slow to look again is not held for ever: once it was for that, it is served.
  -- A jump does not count: a loaded machine may stand still just after it.
  local is_free = not silent or clock.before >= silent + lease_us
  if clock.elapsed < 0 or clock.excess > lease_us or clock.elapsed > silence_us and is_free then
    held = clock.steady
    redis.call('HSET', key, 'held', text(held))
    if clock.steady - clock.before > silence_us then
      redis.call('HSET', key, 'silent', text(held))
    end
  end
  local until_us = math.max(tonumber(kept[2]) or 0, clock.wall - clock.elapsed)
  if clock.elapsed < 0 then
    redis.call('HSET', key, 'ahead', text(until_us))
  end
  local left_ms = redis.call('PTTL', bell)
  if left_ms > 0 then
    redis.call('PEXPIRE', key, text(left_ms)) -- it goes with its queue
  end
  paused[queue] = kept[4]
  may_claim[queue] = not held or clock.steady >= held + lease_us
  ahead[queue] = (kept[2] or clock.elapsed < 0) and clock.wall < until_us
  return math.floor(clock.steady / 1000)
end

-- Returns what other consumers may take of a stream: what was put back, and what was not renewed
-- for a lease. After a step back, that may be stamped with a time to come: it is not renewed if a
-- lease later it still is.
local function abandoned(queue, stream)
  if not may_claim[queue] then
    return pending(stream, 'IDLE', lease_ms, '-', '+', SWEEP, nobody)
  end
  local found = pending(stream, 'IDLE', lease_ms, '-', '+', SWEEP)
  if ahead[queue] then
    local stamped = {}
    for _, one in ipairs(pending(stream, 'IDLE', -1, '-', '+', 10 * SWEEP)) do
      stamped[one[1]] = true
    end
    for _, one in ipairs(pending(stream, '-', '+', 10 * SWEEP)) do
      if not stamped[one[1]] then
        found[#found + 1] = one
      end
    end
  end
  return found
end

-- Says whether an entry is too old to be delivered, and ends it then.
local function expire(queue, level, entry, deliveries)
  local own_ms, fields = nil, entry[2]
  for n = 5, #fields, 2 do
    if fields[n] == 'x' then -- one of its own, and one of its queue's if it was set aside
      own_ms = math.min(own_ms or math.huge, tonumber(fields[n + 1]) or math.huge)
    end
  end
  local limit_ms = ttl_ms[queue]
  if not own_ms and not limit_ms then
    return false
  end
  local age_ms = math.max(0, now_ms - tonumber(string.match(entry[1], '^%d+')))
  local stream, dead = KEYS[queue * stride + level + 1], KEYS[queue * stride + levels + 3]
  if own_ms and age_ms >= own_ms and redis.call('PTTL', stream) < 0 then
    dead_letter(stream, group, entry[1], dead, limit, level, deliveries,
      'expired: waited ' .. age_ms .. ' ms of ' .. own_ms)
  elseif own_ms and age_ms >= own_ms or limit_ms and age_ms >= limit_ms then
    free_claim_of(stream, fields)
    redis.call('XACK', stream, group, entry[1]) -- its queue expires too: no consumer looks there
    redis.call('XDEL', stream, entry[1])
  else
    return false
  end
  expired = expired + 1
  return true
end

local function deliver(queue, level, entry, fence)
  if not expire(queue, level, entry, fence - 1) then
    taken[#taken + 1] = { queue, level, entry[1], fence, entry[2] }
    room = room - 1
  end
end

-- Moves up to `room` messages of tenants into their stream. Returns false if none waits.
-- The queue's time to live is looked at here: the entry that is made of a message is new.
local function take_turns(queue, level)
  if not has_turns[queue] or paused[queue] and level > 0 then
    return false
  end
  local later = KEYS[queue * stride + levels + 2]
  local turns, tenants = turn_keys(later)
  local least, below = turns_of(level)
  local found = redis.call('ZRANGE', turns, least, below, 'BYSCORE', 'LIMIT', 0, room)
  for _, member in ipairs(found) do
    local packed = remove_turn(later, member)
    if packed and ttl_ms[queue] and now_ms - came_ms(member) >= ttl_ms[queue] then
      free_claim_of(later, cmsgpack.unpack(packed)[2])
      expired = expired + 1
    elseif packed then
      local message = cmsgpack.unpack(packed)[2]
      redis.call('XADD', KEYS[queue * stride + level + 1], '*', unpack(message))
    end
  end
  virtual_time(turns, tenants, level)
  return found[1] ~= nil
end

-- Moves what was set aside to the end of its stream: up to `room` messages of a task that is known
-- in another version than those which could not run it, and those whose time is over.
local function take_back(queue, aside)
  local later, group_start = KEYS[queue * stride + levels + 2], '-'
  for _ = 1, SWEEP do
    local first = redis.call('ZRANGE', aside, group_start, '+', 'BYLEX', 'LIMIT', 0, 1)[1]
    if not first then
      return
    end
    local group, task, tried = string.match(first, '^((.-)\n(.-)\n)')
    local version = versions[task]
    local is_known = version and not string.find(tried, version, 1, true)
    group_start = '(' .. group .. '\255'
    local most = is_known and room or SWEEP
    local found = redis.call('ZRANGE', aside, '[' .. group, group_start, 'BYLEX', 'LIMIT', 0, most)
    for _, member in ipairs(found) do
      if is_known or came_ms(member) <= now_ms then
        local packed = remove_turn(later, member)
        if packed then
          local message = cmsgpack.unpack(packed)
          local fields = aged(message[3], now_ms - message[2])
          redis.call('XADD', KEYS[queue * stride + message[1] + 1], '*', unpack(fields))
        end
      end
    end
  end
end

for queue = 0, queues - 1 do
  local base = queue * stride
  local bell, later = KEYS[base + levels + 1], KEYS[base + levels + 2]
  local steady_ms = look_at_clock(queue, KEYS[base + stride], bell)
  local due_ms = steady_ms + tonumber(ARGV[8])
  local rings = pending(bell, '-', '+', SWEEP)
  -- Notes that this consumer looks, for those who count the bell's consumers: before 7.2 a server
  -- does so only if it has an answer, as it always has to what was read before.
  redis.call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', 1, 'STREAMS', bell, '0')
  for _, ring in ipairs(rings) do
    if ring[2] == consumer or ring[3] > lease_ms then
      redis.call('XACK', bell, group, ring[1])
      redis.call('XDEL', bell, ring[1])
    end
  end
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', later, '-inf', due_ms, 'LIMIT', 0, SWEEP)) do
    local message = cmsgpack.unpack(member)
    place(KEYS[base + message[1] + 1], later, bell, message[1], message[2])
    redis.call('ZREM', later, member)
  end
  local turns, _, _, aside = turn_keys(later)
  has_turns[queue] = redis.call('EXISTS', turns, aside) > 0
  if has_turns[queue] and redis.call('EXISTS', aside) == 1 then
    take_back(queue, aside) -- of a paused queue, too: emergencies are taken there
    has_aside = 1
  end
  ttl_ms[queue] = tonumber(redis.call('GET', KEYS[base + stride - 1]))
  local first = redis.call('ZRANGE', later, 0, 0, 'WITHSCORES')
  if first[2] then
    local then_ms = math.max(0, now_ms + tonumber(first[2]) - due_ms)
    next_due_ms = next_due_ms < 0 and then_ms or math.min(next_due_ms, then_ms)
  end
end

for level = 0, levels - 1 do
  for queue = 0, queues - 1 do
    local base = queue * stride
    local stream, dead = KEYS[base + level + 1], KEYS[base + levels + 3]
    for _, old in ipairs(paused[queue] and level > 0 and {} or abandoned(queue, stream)) do
      if room > 0 and old[2] ~= consumer then
        if old[4] >= most then
          dead_letter(stream, group, old[1], dead, limit, level, old[4],
            'delivered ' .. old[4] .. ' times without being completed')
        elseif old[4] <= most / 2 or #taken == 0 then
          local entry = redis.call('XCLAIM', stream, group, consumer, 0, old[1])[1]
          if entry then
            deliver(queue, level, entry, old[4] + 1)
          end
          if old[4] > most / 2 and #taken > 0 then
            room = 0
          end
        end
      end
    end
    local most_expired = expired + SWEEP
    while room > 0 do
      local new = redis.call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', room,
        'STREAMS', stream, '>')
      for _, entry in ipairs(new and new[1][2] or {}) do
        deliver(queue, level, entry, 1)
      end
      if expired > most_expired or not new and not take_turns(queue, level) then
        break -- the caller looks again at once
      end
    end
  end
end
for queue = 0, queues - 1 do
  if has_turns[queue] and room <= 0 then
    local bell, later = unpack(KEYS, queue * stride + levels + 1, queue * stride + levels + 2)
    if not paused[queue] or redis.call('ZCOUNT', (turn_keys(later)), turns_of(0)) > 0 then
      ring_once(bell)
    end
  end
end
return { now_ms, next_due_ms, taken, expired, has_aside }

--- begin
#!lua flags=allow-oom
-- Has one consumer begin on queues: the group is on every stream, beginning with the oldest
-- message; whatever the consumer's name has pending and its living holder does not know of is
-- put back (a killed namesake's messages, and those whose delivery was lost with a
-- connection); consumers that were silent for long are forgotten.
-- KEYS     for each queue: one stream per priority, bell, the key that is there while it is alive
-- ARGV[1]  group    ARGV[2]  consumer    ARGV[3]  the name of no consumer
-- ARGV[4]  number of priorities    ARGV[5]  silent for, ms
--          then the entries that are known, each as stream, space, id
-- Returns how many were put back.
local levels, back = tonumber(ARGV[4]), 0
local known = {}
for n = 6, #ARGV do
  known[ARGV[n]] = true
end
for n, stream in ipairs(KEYS) do
  local level = (n - 1) % (levels + 2)
  if level <= levels then
    redis.pcall('XGROUP', 'CREATE', stream, ARGV[1], '0', 'MKSTREAM') -- BUSYGROUP if it is there
    local left_ms = redis.call('PTTL', KEYS[n + levels + 1 - level])
    if left_ms > 0 then
      redis.call('PEXPIRE', stream, text(left_ms))
    end
  end
  if level < levels then
    local pending = redis.pcall('XPENDING', stream, ARGV[1], '-', '+', 1000000, ARGV[2])
    if pending.err then
      pending = {}
    end
    for _, entry in ipairs(pending) do
      if not known[stream .. ' ' .. entry[1]] then
        redis.call('XCLAIM', stream, ARGV[1], ARGV[3], 0, entry[1], 'IDLE', FOREVER_MS, 'JUSTID')
        ring(KEYS[n + levels - level])
        back = back + 1
      end
    end
  end
end
forget(KEYS, ARGV[1], '', ARGV[5])
return back

--- renew
-- Renews leases: resets the idle time of what the caller still holds.
-- KEYS[n]  the stream of the n-th delivery
-- ARGV[1]  group    ARGV[2]  consumer    then for each delivery: entry id, fence
-- Returns for each 1 renewed, 0 settled, -1 held by another consumer, 2 unknown: the server was
-- emptied, or came back without its last moments, and no consumer has it.
-- JUSTID leaves the delivery count, which is the fence, as it is.
local function is_unknown(stream, id)
  local about = redis.pcall('XINFO', 'STREAM', stream)
  if about.err then
    return true
  end
  for n = 1, #about, 2 do
    if about[n] == 'last-generated-id' then
      local last_ms, last = string.match(about[n + 1], '(%d+)-(%d+)')
      local ms, number = string.match(id, '(%d+)-(%d+)')
      last_ms, ms = tonumber(last_ms), tonumber(ms)
      return ms > last_ms or ms == last_ms and tonumber(number) > tonumber(last)
    end
  end
  return false
end

local answers = {}
for n, stream in ipairs(KEYS) do
  local id, fence = ARGV[2 * n + 1], ARGV[2 * n + 2]
  answers[n] = held(stream, ARGV[1], ARGV[2], id, fence)
  if answers[n] == 1 then
    redis.call('XCLAIM', stream, ARGV[1], ARGV[2], 0, id, 'JUSTID')
  elseif answers[n] == 0 and is_unknown(stream, id) then
    answers[n] = 2
  end
end
return answers

--- release
#!lua flags=allow-oom
-- Puts deliveries back: they belong to no consumer, keep their place, and wake a reader.
-- KEYS     for each delivery: its stream, its queue's bell
-- ARGV[1]  group    ARGV[2]  consumer    ARGV[3]  the name of no consumer
--          then for each delivery: entry id, fence, deliveries to count (the fence, or one
--          less if no task saw it)
-- Returns for each 1 put back, 0 settled before, -1 held by another consumer.
local answers = {}
for n = 1, #KEYS / 2 do
  local stream, bell = KEYS[2 * n - 1], KEYS[2 * n]
  local id, fence, counted = ARGV[3 * n + 1], ARGV[3 * n + 2], ARGV[3 * n + 3]
  answers[n] = held(stream, ARGV[1], ARGV[2], id, fence)
  if answers[n] == 1 then
    redis.call('XCLAIM', stream, ARGV[1], ARGV[3], 0, id,
      'IDLE', FOREVER_MS, 'RETRYCOUNT', counted, 'JUSTID')
    ring(bell)
  end
end
return answers

--- set_aside
#!lua flags=allow-oom
-- Has a delivery wait until a consumer takes that knows its task, or its time is over; see `take`.
-- If nothing was set aside before, all that wait are woken: one of them may know it.
-- KEYS[1]  stream    KEYS[2]  schedule    KEYS[3]  bell
-- ARGV[1]  group    ARGV[2]  consumer    ARGV[3]  entry id    ARGV[4]  fence    ARGV[5]  priority
-- ARGV[6]  task    ARGV[7]  versions of it that could not run it    ARGV[8]  ms to wait
-- ARGV[9]  deliveries that count
-- Returns 1 set aside, 0 settled before, -1 held by another consumer.
local stream, later, id = KEYS[1], KEYS[2], ARGV[3]
local answer = held(stream, ARGV[1], ARGV[2], id, ARGV[4])
local found = answer == 1 and redis.call('XRANGE', stream, id, id)[1]
if not found then
  return answer
end
local now_ms, fields = server_ms(), {}
for n = 1, #found[2], 2 do
  if found[2][n] ~= 'u' then
    fields[#fields + 1], fields[#fields + 2] = found[2][n], found[2][n + 1]
  end
end
local limit_ms = redis.call('GET', (string.gsub(later, 'later$', 'ttl')))
if limit_ms then -- the entry that is made of it is new, and its queue's time to live goes on
  fields[#fields + 1], fields[#fields + 2] = 'x', limit_ms
end
aged(fields, now_ms - tonumber(string.match(id, '^%d+')))
local until_ms = text(now_ms + ARGV[8])
fields[#fields + 1] = 'u'
fields[#fields + 1] = ARGV[9] .. ':' .. until_ms .. ':' .. ARGV[7]
local turns, _, messages, aside = turn_keys(later)
local clock = string.gsub(later, 'later$', 'clock')
local number = redis.call('HINCRBY', clock, 'turn', 1)
local place = string.format('%s\n%s\n%016.0f:%s', ARGV[6], ARGV[7], number, until_ms)
redis.call('HSET', messages, place, cmsgpack.pack({ tonumber(ARGV[5]), now_ms, fields }))
if redis.call('EXISTS', aside) == 0 then
  ring_for_all(KEYS[3])
end
redis.call('ZADD', aside, 0, place)
expire_with_queue(later, { messages, aside, clock })
redis.call('XACK', stream, ARGV[1], id)
redis.call('XDEL', stream, id)
return 1

--- leave
#!lua flags=allow-oom
-- Forgets the consumer that leaves and those long silent, if they hold nothing.
-- KEYS     streams
-- ARGV[1]  group    ARGV[2]  consumer that leaves    ARGV[3]  silent for, ms
forget(KEYS, ARGV[1], ARGV[2], ARGV[3])
return 0
