-- Scripts about whole queues and exchanges. "--- NAME" begins a script.

-- Says whether an entry's fields are the message of task `id`, by its headers.
-- first: of ARGV, where the spellings of the id in JSON begin; a search for them is cheap.
local function is_of_task(fields, id, first)
  if fields[1] ~= 'h' or fields[3] ~= 'b' then
    return false
  end
  for n = first, #ARGV do
    if string.find(fields[2], ARGV[n], 1, true) then
      local readable, head = pcall(cjson.decode, fields[2])
      local headers = readable and type(head) == 'table' and head.headers
      return type(headers) == 'table' and headers.id == id
    end
  end
  return false
end

-- Where the group's next entry follows. The group of a paused stream is at the end of all ids.
local function delivered(key, clock, level)
  local groups = redis.pcall('XINFO', 'GROUPS', key)
  for _, one in ipairs(groups.err and {} or groups) do
    local fields = {}
    for at = 1, #one, 2 do
      fields[one[at]] = one[at + 1]
    end
    if fields['name'] == ARGV[1] then
      local kept = redis.pcall('HGET', clock, 'paused' .. level)
      return type(kept) == 'string' and kept or fields['last-delivered-id']
    end
  end
end

--- levels
-- Counts what is in each priority of several queues.
-- KEYS     of each queue: one stream per priority, schedule, dead letters, clock
-- ARGV[1]  group    ARGV[2]  the name of no consumer    ARGV[3]  priorities of a queue
-- Returns {seconds, microseconds}, then of each queue a list: of each priority ready, in flight, age
-- of the oldest that waits in ms or -1; then scheduled, dead, and 1 if it is paused. -1 stands for
-- what cannot be read.
local group, nobody, levels = ARGV[1], ARGV[2], tonumber(ARGV[3])
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

local function number(answer)
  return type(answer) == 'number' and answer or -1
end

local function age_ms(entry)
  return math.max(0, now_ms - tonumber(string.match(entry, '^%d+')))
end

-- Returns how many wait for their tenant's turn, and the age of the oldest of the LOOKED_AT that
-- are next, -1 for none. Each tenant's first is among the next two of each: up to 32 tenants.
local LOOKED_AT = 64
local function waiting_turns(later, n)
  local turns, oldest_ms = turn_keys(later), -1
  local least, below = turns_of(n)
  local count = number(redis.pcall('ZCOUNT', turns, least, below))
  if count > 0 then
    local next = redis.call('ZRANGE', turns, least, below, 'BYSCORE', 'LIMIT', 0, LOOKED_AT)
    for _, member in ipairs(next) do
      oldest_ms = math.max(oldest_ms, now_ms - came_ms(member), 0)
    end
  end
  return count, oldest_ms
end

local function level(key, clock, n, later)
  local length = redis.pcall('XLEN', key)
  local turns, oldest_ms = waiting_turns(later, n)
  if type(length) ~= 'number' or turns < 0 then
    return { -1, -1, -1 }
  end
  if length == 0 then
    return { turns, 0, oldest_ms }
  end
  local taken, last = 0, '-'
  local summary = redis.pcall('XPENDING', key, group)
  if not summary.err then
    for _, one in ipairs(summary[4] or {}) do
      if one[1] ~= nobody then
        taken = taken + tonumber(one[2])
      end
    end
    local back = redis.call('XPENDING', key, group, '-', '+', 1, nobody)
    if back[1] then
      oldest_ms = math.max(oldest_ms, age_ms(back[1][1]))
    end
    last = '(' .. delivered(key, clock, n)
  end
  local next = redis.call('XRANGE', key, last, '+', 'COUNT', 1)
  if next[1] then
    oldest_ms = math.max(oldest_ms, age_ms(next[1][1]))
  end
  return { math.max(0, length - taken) + turns, taken, oldest_ms }
end

local found = { { tonumber(time[1]), tonumber(time[2]) } }
for first = 1, #KEYS, levels + 3 do
  local queue = {}
  for at = first, first + levels - 1 do
    local figures = level(KEYS[at], KEYS[first + levels + 2], at - first, KEYS[first + levels])
    for _, figure in ipairs(figures) do
      queue[#queue + 1] = figure
    end
  end
  local later = KEYS[first + levels]
  local _, _, _, aside = turn_keys(later)
  local waiting = { number(redis.pcall('ZCARD', later)), number(redis.pcall('ZCARD', aside)) }
  queue[#queue + 1] = math.min(unpack(waiting)) < 0 and -1 or waiting[1] + waiting[2]
  queue[#queue + 1] = number(redis.pcall('XLEN', KEYS[first + levels + 1]))
  queue[#queue + 1] = number(redis.pcall('HEXISTS', KEYS[first + levels + 2], 'paused'))
  found[#found + 1] = queue
end
return found

--- purge
-- Drops what waits in one queue, ready or scheduled; what is held stays.
-- KEYS     one stream per priority, schedule, clock
-- ARGV[1]  group    ARGV[2]  the name of no consumer    ARGV[3]  most to drop at once
-- Returns how many were dropped; call again while it is that most or more.
local most, dropped = tonumber(ARGV[3]), 0
local function drop(stream, entry)
  free_claim_of(stream, entry[2])
  redis.call('XACK', stream, ARGV[1], entry[1])
  dropped = dropped + redis.call('XDEL', stream, entry[1])
end

local function drop_packed(packed)
  if packed then
    local message = cmsgpack.unpack(packed)
    free_claim_of(KEYS[1], message[3] or message[2]) -- what was set aside has its time before
    dropped = dropped + 1
  end
end

for level = 1, #KEYS - 2 do
  local stream, after = KEYS[level], '-'
  local last = delivered(stream, KEYS[#KEYS], level - 1)
  if last then
    after = '(' .. last
    for _, back in ipairs(redis.call('XPENDING', stream, ARGV[1], '-', '+', most, ARGV[2])) do
      drop(stream, redis.call('XRANGE', stream, back[1], back[1])[1] or { back[1], { 'h', '' } })
    end
  end
  for _, entry in ipairs(redis.call('XRANGE', stream, after, '+', 'COUNT', most)) do
    drop(stream, entry)
  end
end
local scheduled = KEYS[#KEYS - 1]
local turns, tenants, messages, aside = turn_keys(scheduled)
local packed = redis.call('ZPOPMIN', scheduled, most)
for n = 1, #packed, 2 do
  drop_packed(packed[n])
end
for _, places in ipairs({ turns, aside }) do
  for _, place in ipairs(redis.call('ZRANGE', places, 0, most - 1)) do
    drop_packed(remove_turn(scheduled, place))
  end
end
if redis.call('EXISTS', turns, aside) == 0 then
  redis.call('DEL', tenants, messages)
end
return dropped

--- pause
#!lua flags=allow-oom
-- Pauses a queue, or resumes it. The group of each stream but the first, emergencies, goes to the
-- end of all ids: a read that already waits gets nothing either. Resumed it is where it was, and
-- those who wait are woken, 64 at most.
-- KEYS[1]  clock    KEYS[2]  bell    KEYS     one stream per priority
-- ARGV[1]  group    ARGV[2]  pause or resume
-- Returns 1 if something changed.
local clock, bell, resumes = KEYS[1], KEYS[2], ARGV[2] == 'resume'
if resumes == (redis.call('HEXISTS', clock, 'paused') == 0) then
  return 0
end
for level = 1, #KEYS - 3 do
  local stream, field = KEYS[level + 3], 'paused' .. level
  if resumes then
    redis.pcall('XGROUP', 'SETID', stream, ARGV[1], redis.call('HGET', clock, field) or '0')
    redis.call('HDEL', clock, field)
  else
    redis.pcall('XGROUP', 'CREATE', stream, ARGV[1], '0', 'MKSTREAM') -- BUSYGROUP if it is there
    redis.call('HSET', clock, field, delivered(stream, clock, level))
    redis.call('XGROUP', 'SETID', stream, ARGV[1], '18446744073709551615-18446744073709551615')
    local left_ms = redis.call('PTTL', bell)
    if left_ms > 0 then
      redis.call('PEXPIRE', stream, text(left_ms)) -- it goes with its queue
    end
  end
end
if not resumes then
  redis.call('HSET', clock, 'paused', '1')
  return 1
end
redis.call('HDEL', clock, 'paused')
ring_for_all(bell)
return 1

--- delete
-- Deletes a queue and its bindings. Dead letters stay.
-- KEYS[1]  the queue's list of exchanges    KEYS     then whatever else goes with it
-- ARGV[1]  the queue    ARGV[2]  what the key of an exchange begins with
-- Returns the exchanges whose bindings have changed.
local changed = {}
for _, exchange in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  local key = ARGV[2] .. exchange
  for _, field in ipairs(redis.call('HKEYS', key)) do
    if string.sub(field, 1, 1) == 'b' and cjson.decode(string.sub(field, 2))[3] == ARGV[1] then
      redis.call('HDEL', key, field)
      redis.call('HINCRBY', key, 'version', 1)
      changed[#changed + 1] = exchange
    end
  end
end
redis.call('DEL', unpack(KEYS))
return changed

--- bind
#!lua flags=allow-oom
-- Adds or removes one binding of an exchange, and counts the change. An exchange that has only
-- queues that expire expires with the last of them.
-- KEYS[1]  the exchange's bindings    KEYS[2]  the queue's list of exchanges
-- ARGV[1]  add, remove or type    ARGV[2]  the binding, or the type    ARGV[3]  exchange
-- A binding is JSON: routing key, pattern, queue, and the key that is there while the queue is
-- alive, "" if it does not expire.
-- Returns 1 if something changed.
-- A full server takes it all the same: an emergency broadcast declares its exchange first.

-- Drops the bindings of expired queues. Returns whether any queue that is left stays for good.
local function sweep()
  local stays = false
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.sub(field, 1, 1) == 'b' then
      local alive = cjson.decode(string.sub(field, 2))[4]
      if alive == '' then
        stays = true
      elseif redis.call('EXISTS', alive) == 0 then
        redis.call('HDEL', KEYS[1], field)
      end
    end
  end
  return stays
end

local changed
if ARGV[1] ~= 'remove' and redis.call('HEXISTS', KEYS[1], 'version') == 0 then
  local time = redis.call('TIME') -- no version of an expired exchange comes again
  redis.call('HSET', KEYS[1], 'version', string.format('%d%06d', time[1], time[2]))
end
if ARGV[1] == 'add' then
  changed = redis.call('HSET', KEYS[1], 'b' .. ARGV[2], '')
  redis.call('SADD', KEYS[2], ARGV[3])
  local alive = cjson.decode(ARGV[2])[4]
  if alive == '' then
    redis.call('PERSIST', KEYS[1])
  elseif not sweep() then
    local left_ms = redis.call('PTTL', alive)
    redis.call('PEXPIRE', KEYS[1], text(math.max(left_ms, redis.call('PTTL', KEYS[1]))))
  end
  if alive ~= '' then
    redis.call('PEXPIRE', KEYS[2], text(math.max(1, redis.call('PTTL', alive))))
  end
elseif ARGV[1] == 'remove' then
  changed = redis.call('HDEL', KEYS[1], 'b' .. ARGV[2])
else
  changed = redis.call('HGET', KEYS[1], 'type') ~= ARGV[2] and 1 or 0
  redis.call('HSET', KEYS[1], 'type', ARGV[2])
end
if changed == 1 then
  redis.call('HINCRBY', KEYS[1], 'version', 1)
end
return changed

--- keep
-- Renews the life of a queue that expires if it is not used, and of its exchanges.
-- KEYS[1]  there while it is alive    KEYS[2]  its list of exchanges    KEYS     all it has
-- ARGV[1]  its life, ms    ARGV[2]  what the key of an exchange begins with
redis.call('SET', KEYS[1], '1', 'PX', ARGV[1])
for n = 2, #KEYS do
  redis.call('PEXPIRE', KEYS[n], ARGV[1])
end
for _, exchange in ipairs(redis.call('SMEMBERS', KEYS[2])) do
  local left_ms = redis.call('PTTL', ARGV[2] .. exchange)
  if left_ms >= 0 and left_ms < tonumber(ARGV[1]) then -- else another of its queues stays longer
    redis.call('PEXPIRE', ARGV[2] .. exchange, ARGV[1])
  end
end
return 1

--- requeue_dead
-- Moves one dead letter back to the end of its stream, or of what waits of its tenant, its
-- deliveries and its end forgotten. It has its claim again, unless another has that now.
-- KEYS[1]  dead letters    KEYS[2]  schedule    KEYS[3]  bell
-- KEYS     then one stream per priority, then the keys to forget
-- ARGV[1]  id of the dead letter    ARGV[2]  number of priorities
-- ARGV[3]  its head from now on, "" for the one it has
-- Returns 1 moved, 0 not there: then nothing is forgotten.
local found = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])[1]
if not found then
  return 0
end
local fields = {}
for n = 1, #found[2], 2 do
  fields[found[2][n]] = found[2][n + 1]
end
for n = 4 + tonumber(ARGV[2]), #KEYS do
  redis.call('DEL', KEYS[n])
end
local head = ARGV[3] ~= '' and ARGV[3] or fields.h
local headers, lasts, digest, queue = claim_in(head)
if lasts then
  local unique, ends = claim_keys(KEYS[2], queue)
  if not claimed_by(unique, digest) then
    claim(unique, ends, digest, lasts, headers.id, headers.task)
  end
end
local message = { 'h', head, 'b', fields.b, fields.f and 'f', fields.f }
place(KEYS[4 + fields.level], KEYS[2], KEYS[3], fields.level, message)
redis.call('XDEL', KEYS[1], ARGV[1])
return 1

--- revoke
#!lua flags=allow-oom
-- Marks a task's message as revoked, if it waits in this part of a priority stream. No consumer
-- runs what has the mark, whether or not it knows of the revocation.
-- KEYS[1]  priority stream
-- ARGV[1]  group    ARGV[2]  the consumer of what was put back    ARGV[3]  where to start
-- ARGV[4]  most entries to look at    ARGV[5]  id    ARGV[6]  mark    then spellings of the id
-- Returns {'', 1 if it is in flight, 0 if it is marked, how many are before it, holder, its fields},
-- {'', -1, how many there are}, or the same with the last entry looked at if there are more.
-- An entry cannot be changed: the marked one takes its place at the end, without a time to live.
-- With an empty mark it is only found, and nothing is changed.
local stream, group, nobody = KEYS[1], ARGV[1], ARGV[2]
local entries = redis.call('XRANGE', stream, ARGV[3], '+', 'COUNT', ARGV[4])
for n, entry in ipairs(entries) do
  local id, fields = entry[1], entry[2]
  if is_of_task(fields, ARGV[5], 7) then
    local pending = redis.pcall('XPENDING', stream, group, id, id, 1)
    local holder = not pending.err and pending[1] and pending[1][2]
    if holder and holder ~= nobody then
      return { '', 1, n - 1, holder, fields }
    end
    if fields[5] ~= 'r' and ARGV[6] ~= '' then
      free_claim_of(stream, fields)
      redis.call('XACK', stream, group, id)
      redis.call('XDEL', stream, id)
      redis.call('XADD', stream, '*', 'h', fields[2], 'b', fields[4], 'r', ARGV[6])
    end
    return { '', 0, n - 1, '', fields }
  end
end
return { #entries == tonumber(ARGV[4]) and entries[#entries][1] or '', -1, #entries }

--- revoke_scheduled
#!lua flags=allow-oom
-- Takes a message out of the schedule, or of what waits for its tenant's turn, and marks it as
-- revoked: a consumer ends it at once.
-- KEYS[1]  schedule    KEYS     then one stream per priority
-- ARGV[1]  the message, packed: in the schedule it is the member    ARGV[2]  id    ARGV[3]  mark
-- ARGV[4]  its place in what waits for turns, "" for the schedule    then spellings of the id
-- Returns 1 marked, 0 not of this task, or not there any more: it has become due, or was taken.
-- With an empty mark it is only found, and nothing is changed.
local message = cmsgpack.unpack(ARGV[1])
local fields = message[#message]
if not is_of_task(fields, ARGV[2], 5) then
  return 0
elseif ARGV[3] == '' then
  return 1
elseif ARGV[4] == '' then
  if redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then
    return 0
  end
elseif not remove_turn(KEYS[1], ARGV[4]) then
  return 0
else -- its tenant's next message has the turn that this one does not use
  local turns, tenants = turn_keys(KEYS[1])
  redis.call('ZADD', tenants, 'XX', 'INCR', -1, message[1] .. ':' .. fields[6])
  virtual_time(turns, tenants, message[1])
end
free_claim_of(KEYS[1], fields)
redis.call('XADD', KEYS[2 + message[1]], '*', 'h', fields[2], 'b', fields[4], 'r', ARGV[3])
return 1

--- free_claim
#!lua flags=allow-oom
-- Frees the claim of a task that begins, or that a person frees.
-- KEYS[1]  claims    KEYS[2]  those that end by time    ARGV[1]  digest    ARGV[2]  id
free_claim(KEYS[1], KEYS[2], ARGV[1], ARGV[2])
return 1
