-- Scripts that put messages into queues and exchanges. "--- NAME" begins a script.

-- Notes that a sender's publish `number` is put. Returns true if it, or a later one, was before:
-- an attempt whose connection was given up may arrive after its repetition and the next publish.
-- Also returns the number that was there before, or false.
local function is_repeated(key, number, remember_ms)
  local last = redis.call('SET', key, number, 'PX', remember_ms, 'GET')
  if last and tonumber(last) >= tonumber(number) then
    redis.call('SET', key, last, 'PX', remember_ms)
    return true
  end
  return false, last
end

--- put
-- Puts messages into one priority stream, all or none, and only once: what most publishes need, at
-- half the price of `publish`. A sender has one publish under way for each key, and numbers them
-- upwards, so the latest number is all that is remembered.
-- KEYS[1]  the number of its sender's latest publish    KEYS[2]  priority stream
-- ARGV[1]  number of this publish    ARGV[2]  ms to remember it
-- ARGV     then head and body of each message
-- Returns 1, or 0 for a repetition.
local repeated, last = is_repeated(KEYS[1], ARGV[1], ARGV[2])
if repeated then
  return 0
end
local entries = {}
for n = 3, #ARGV, 2 do
  local put = redis.pcall('XADD', KEYS[2], '*', 'h', ARGV[n], 'b', ARGV[n + 1])
  if put.err then -- the stream has given its last id, or is none
    if entries[1] then
      redis.call('XDEL', KEYS[2], unpack(entries))
    end
    redis.call('SET', KEYS[1], last or 0, 'PX', ARGV[2]) -- this one may be sent again
    return put
  end
  entries[#entries + 1] = put
end
return 1

--- put_unique
-- Puts one message and gives it its claim, unless another task has that.
-- KEYS[1]  the number of its sender's latest publish    KEYS[2]  priority stream
-- KEYS[3]  schedule    KEYS[4]  bell    KEYS[5]  claims    KEYS[6]  those that end by time
-- ARGV[1]  number of this publish    ARGV[2]  ms to remember it    ARGV[3]  priority
-- ARGV[4]  server's ms when it is due, 0 for now    ARGV[5]  head    ARGV[6]  body
-- ARGV[7]  tenant, "" for none    ARGV[8]  digest of the claim    ARGV[9]  how long it lasts
-- ARGV[10] id    ARGV[11] task
-- Returns the id of the task that has the claim now: its own for a repetition, too.
if tonumber(redis.call('GET', KEYS[1]) or 0) >= tonumber(ARGV[1]) then
  return ARGV[10]
end
local other = claimed_by(KEYS[5], ARGV[8])
if other then
  return other
end
enqueue(KEYS[2], KEYS[3], KEYS[4], ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6], ARGV[7])
claim(KEYS[5], KEYS[6], ARGV[8], ARGV[9], ARGV[10], ARGV[11])
is_repeated(KEYS[1], ARGV[1], ARGV[2])
return ARGV[10]

--- put_many
-- Puts several messages, all or none, and only once; see `put`.
-- KEYS[1]  the number of its sender's latest publish
-- KEYS     then for each queue: schedule, clock, bell, priority streams, first level first
-- ARGV[1]  number of this publish    ARGV[2]  ms to remember it
-- ARGV     then for each message: number of its queue (from 0), priority, server's ms when it is
--          due (0 for now), head, body, tenant ("" for none)
-- Returns 1, or 0 for a repetition.
local OF_QUEUE, OF_MESSAGE, KINDS = 7, 6, { [0] = 'zset', 'hash' }
local function wrong_type(key, wanted)
  local kind = redis.call('TYPE', key).ok
  if kind ~= 'none' and kind ~= wanted then
    return redis.error_reply('WRONGTYPE ' .. key .. ' is a ' .. kind)
  end
end

for n = 2, #KEYS do
  local wrong = wrong_type(KEYS[n], KINDS[(n - 2) % OF_QUEUE] or 'stream')
  if wrong then
    return wrong
  end
end
for n = 3, #ARGV, OF_MESSAGE do
  if ARGV[n + 5] ~= '' then
    local turns, tenants, messages = turn_keys(KEYS[2 + OF_QUEUE * ARGV[n]])
    local wrong = wrong_type(turns, 'zset') or wrong_type(tenants, 'zset')
      or wrong_type(messages, 'hash')
    if wrong then
      return wrong
    end
  end
end
local repeated, last = is_repeated(KEYS[1], ARGV[1], ARGV[2])
if repeated then
  return 0
end
local now_ms = server_ms()
local put, others = {}, {}
for n = 3, #ARGV, OF_MESSAGE do
  local queue, level = 2 + OF_QUEUE * ARGV[n], ARGV[n + 1]
  local due_ms, stream = tonumber(ARGV[n + 2]), KEYS[queue + 3 + level]
  if due_ms > now_ms or ARGV[n + 5] ~= '' then
    others[#others + 1] = n
  else
    local entry = redis.pcall('XADD', stream, '*', 'h', ARGV[n + 3], 'b', ARGV[n + 4])
    if entry.err then -- the stream has given its last id
      for _, one in ipairs(put) do
        redis.call('XDEL', one[1], one[2])
      end
      redis.call('SET', KEYS[1], last or 0, 'PX', ARGV[2]) -- this one may be sent again
      return entry
    end
    put[#put + 1] = { stream, entry }
  end
end
for _, n in ipairs(others) do -- nothing refuses these
  local queue, level, due_ms, head, body, tenant = unpack(ARGV, n, n + 5)
  queue = 2 + OF_QUEUE * queue
  enqueue('', KEYS[queue], KEYS[queue + 2], level, tonumber(due_ms), head, body, tenant)
end
return 1

--- publish
-- Puts one message into every queue it is routed to, now or when it is due, all or none, and
-- only once: a repetition of the same publish puts nothing.
-- KEYS[1]  the exchange's bindings    KEYS[2]  hash of what was published before, "" for none
-- KEYS     then for each queue: stream of its priority, schedule, bell, sign of life, time to live
-- ARGV[1]  version of the bindings that the sender routed by, "" for none
-- ARGV[2]  server's ms when it is due, 0 for now    ARGV[3]  priority
-- ARGV[4]  head    ARGV[5]  body    ARGV[6]  its time to live, ms, "" for ever
-- ARGV[7]  number of this publish in the hash    ARGV[8]  ms to remember it, after the last
-- ARGV[9]  group    ARGV[10] lease, ms
--          then for each queue 1 if it needs a sign of life, or 0
-- Returns {1, the numbers of the queues (from 0) that have died and got nothing}, or {0, the
-- bindings} if those have changed since, and nothing was done.
local REMEMBERED = 64 -- of each sender; who repeats one has not sent many others since
local SWEEP = 100
local before, number = KEYS[2], ARGV[7]
if ARGV[1] ~= '' and (redis.call('HGET', KEYS[1], 'version') or '0') ~= ARGV[1] then
  return { 0, redis.call('HGETALL', KEYS[1]) }
end
if not is_none(before) and redis.call('HEXISTS', before, number) == 1 then
  return { 1, {} }
end

-- Frees the claims of entries that are dropped, if the queue has any.
local function free_claims(level, first, last)
  if redis.call('EXISTS', (string.gsub(level, 'level:%d$', 'unique'))) == 1 then
    for _, entry in ipairs(redis.call('XRANGE', level, first, last)) do
      free_claim_of(level, entry[2])
    end
  end
end

-- Drops from a stream what waited for longer than its queue allows: its consumer may be gone, and
-- it would grow for ever. What a consumer holds stays, and so does all that is younger.
local function trim(level, limit_ms)
  local oldest_ms = server_ms() - limit_ms
  if oldest_ms <= 0 then
    return
  end
  local bound = text(oldest_ms)
  local held = redis.pcall('XPENDING', level, ARGV[9], '-', '(' .. bound, SWEEP)
  for n, entry in ipairs(held.err and {} or held) do
    if entry[3] <= tonumber(ARGV[10]) then
      bound = entry[1]
      break
    end
    redis.call('XACK', level, ARGV[9], entry[1]) -- its holder is dead, or it was put back
    free_claims(level, entry[1], entry[1])
    redis.call('XDEL', level, entry[1])
    bound = n == SWEEP and entry[1] or bound
  end
  free_claims(level, '-', '(' .. bound)
  redis.call('XTRIM', level, 'MINID', '~', bound)
end

local gone = {}
for n = 0, (#KEYS - 2) / 5 - 1 do
  local level, later, bell, alive, ttl = unpack(KEYS, 5 * n + 3, 5 * n + 7)
  local left_ms = redis.call('PTTL', alive)
  if ARGV[11 + n] == '1' and left_ms < 0 then
    gone[#gone + 1] = n
  else
    local limit_ms = redis.call('GET', ttl) -- a key of a wrong type stops it before all else
    enqueue(level, later, bell, ARGV[3], tonumber(ARGV[2]), ARGV[4], ARGV[5], '', ARGV[6])
    if limit_ms then
      trim(level, limit_ms)
    end
    if left_ms > 0 then -- what is new expires with its queue
      for _, key in ipairs({ level, later, bell }) do
        redis.call('PEXPIRE', key, text(left_ms))
      end
    end
  end
end
if not is_none(before) then -- last: what could not be put may be sent again
  redis.call('HSET', before, number, '')
  redis.call('HDEL', before, text(number - REMEMBERED))
  redis.call('PEXPIRE', before, ARGV[8])
end
return { 1, gone }

--- broadcast
#!lua flags=allow-oom
-- Sends to the listeners of a fanout exchange; on a full server, too: a stop must get through.
-- KEYS[1]  stream of the exchange
-- ARGV[1]  messages to keep    ARGV[2]  ms to keep them after the last    ARGV[3]  head
-- ARGV[4]  body
-- A key of another type, or one that had the last id there is, is replaced: it takes no entry.
local function put()
  return redis.pcall('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'h', ARGV[3], 'b', ARGV[4])
end
local done = put()
if done.err and (done.err:find('WRONGTYPE') or done.err:find('exhausted')) then
  redis.call('DEL', KEYS[1])
  done = put()
end
if done.err then
  return done
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1

--- notify
-- Sends to the listeners of a fanout exchange, and keeps little. A full server refuses it: events
-- are no reason to take the memory that a stop needs.
-- KEYS[1]  stream of the exchange
-- ARGV[1]  messages to keep    ARGV[2]  ms to keep each    ARGV[3]  head    ARGV[4]  body
redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'h', ARGV[3], 'b', ARGV[4])
local oldest_ms = server_ms() - ARGV[2]
redis.call('XTRIM', KEYS[1], 'MINID', '~', text(oldest_ms))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1

--- fanout_ends
#!lua flags=allow-oom
-- Returns {the server's ms, {the last id that each stream has given, "0-0" for none}}. A key that can
-- take no entry is deleted.
-- KEYS  streams of exchanges
local LAST = '18446744073709551615-18446744073709551615'
local ends = {}
for n, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key).ok
  ends[n] = '0-0'
  if kind == 'stream' then
    local about = redis.call('XINFO', 'STREAM', key)
    for i = 1, #about, 2 do
      if about[i] == 'last-generated-id' then
        ends[n] = about[i + 1]
      end
    end
  end
  if kind ~= 'none' and (kind ~= 'stream' or ends[n] == LAST) then
    redis.call('DEL', key)
    ends[n] = '0-0'
  end
end
return { server_ms(), ends }
