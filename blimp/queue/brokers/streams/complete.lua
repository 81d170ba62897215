-- Scripts that end deliveries. "--- NAME" begins a script.

--- ack
-- Completes deliveries: each entry leaves its stream, if the caller still holds it.
-- KEYS[n]  the stream of the n-th delivery
-- ARGV[1]  group    ARGV[2]  consumer    then for each delivery: entry id, fence
-- Returns for each 1 completed, 0 settled before, -1 held by another consumer.
local answers = {}
for n, stream in ipairs(KEYS) do
  local id, fence = ARGV[2 * n + 1], ARGV[2 * n + 2]
  answers[n] = held(stream, ARGV[1], ARGV[2], id, fence)
  if answers[n] == 1 then
    redis.call('XACK', stream, ARGV[1], id)
    redis.call('XDEL', stream, id)
  end
end
return answers

--- step
-- Returns what the steps of a task returned, or stores one result, if the caller still holds its delivery.
-- KEYS[1]  stream    KEYS[2]  hash of the results, by the names of the steps
-- ARGV[1]  group    ARGV[2]  consumer    ARGV[3]  entry id    ARGV[4]  fence
-- ARGV[5]  seconds to keep all results    then, to store one: its name, the result
-- Returns names and results in turn, none if one was stored; nil if the caller does not hold it.
if held(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]) ~= 1 then
  return false
end
local found = {}
if ARGV[6] then
  redis.call('HSET', KEYS[2], ARGV[6], ARGV[7])
else
  found = redis.call('HGETALL', KEYS[2])
end
redis.call('EXPIRE', KEYS[2], ARGV[5])
return found

--- dead_letter
-- Moves one delivery to the dead letters, if the caller still holds it.
-- KEYS[1]  stream    KEYS[2]  dead letters
-- ARGV[1]  group    ARGV[2]  consumer    ARGV[3]  entry id    ARGV[4]  fence
-- ARGV[5]  dead letters to keep, "<letters>:<bytes>"    ARGV[6]  priority    ARGV[7]  reason
-- Returns 1 moved, 0 settled before, -1 held by another consumer.
local answer = held(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4])
if answer == 1 then
  dead_letter(KEYS[1], ARGV[1], ARGV[3], KEYS[2], ARGV[5], ARGV[6], ARGV[4], ARGV[7])
end
return answer

--- complete
-- Ends deliveries, each in one step: the caller still holds it, then its result is written, then
-- what follows it is enqueued, then its message is gone, or a dead letter.
-- ARGV[1]  group    ARGV[2]  consumer    ARGV[3]  dead letters to keep, "<letters>:<bytes>"
-- then for each delivery that is only acknowledged, as most are without results
--   KEYS   its stream    ARGV   "", entry id, fence
-- and for each other one
--   KEYS   its stream, its dead letters, celery-task-meta-<id> (key and channel)
--   ARGV   number of messages that follow, entry id, fence, priority, the reason to make it a
--          dead letter, the record (JSON), seconds to keep that; "" for what there is not
--   if that number has a "!" before it: ARGV claims, those that end by time, the digest of the claim
--   that is free then, id of its task. No KEYS: a message may name what this user may not touch
--   for each "*" before that number: KEYS a key that expires then    ARGV in how many seconds, 0: now
--   and for each message that follows
--     KEYS   stream of its priority, schedule, bell
--     ARGV   priority, server's ms when due, head, body, tenant ("" for none)
--   and if that number has a "+" before it (after the "*")
--     ARGV   number of parts of chords, of chords whose body follows, of further records, of
--            chords that begin, seconds to keep what chords are
--     then for each part          KEYS  j t s d c of its chord, see redis/results.lua
--                                 ARGV  member, place, entry
--          each body that follows KEYS  j t s d c    ARGV  seconds to remember it
--          each further record    KEYS  celery-task-meta-<id>    ARGV  record, seconds to keep it
--          each that begins       KEYS  s    ARGV  number of its parts
-- A delivery that was acknowledged before has no entry id. What stands for its stream is a key
-- that is set, so that a repeated end is written once, or "" if a repetition does no harm.
-- Returns for each 1 ended, 0 settled before, -1 held by another consumer: then nothing is
-- written; or the server's error as text, if it would not write. Or a list of those of its
-- parts, from 0, that complete a chord: then its record is written, and it is to be repeated
-- with the bodies.
-- A final record that stands already stays, as in store.lua; the message is gone all the same.
local KEEP_S = 3600
local key, arg = 0, 3

local function next_keys(count)
  key = key + count
  return unpack(KEYS, key - count + 1, key)
end

local function next_args(count)
  arg = arg + count
  return unpack(ARGV, arg - count + 1, arg)
end

-- Reads what chords add to `one`.
local function read_canvas(one)
  local parts, bodies, records, chords, keep_s = next_args(5)
  one.parts, one.bodies, one.records, one.chords = {}, {}, {}, {}
  for n = 1, tonumber(parts) do
    local j, t, s, d, c = next_keys(5)
    local member, place, entry = next_args(3)
    one.parts[n] = { j, t, s, d, c, member, place, entry, keep_s }
  end
  for n = 1, tonumber(bodies) do
    local j, t, s, d, c = next_keys(5)
    one.bodies[n] = { j, t, s, d, c, next_args(1) }
  end
  for n = 1, tonumber(records) do
    one.records[n] = { next_keys(1), next_args(2) }
  end
  for n = 1, tonumber(chords) do
    one.chords[n] = { next_keys(1), next_args(1), keep_s }
  end
end

-- Does what chords add to `one`. Returns the parts that are to begin a body, if there are any.
local function finish_canvas(one)
  local complete = {}
  for n, part in ipairs(one.parts) do
    if count_part(unpack(part)) == 2 then
      complete[#complete + 1] = n - 1
    end
  end
  if complete[1] then
    return complete
  end
  for _, body in ipairs(one.bodies) do
    if has_joined(body[5]) then
      one.following, one.records, one.chords = {}, {}, {} -- all of that was sent before
    end
  end
  for _, record in ipairs(one.records) do
    store_result(record[1], record[2], record[3])
  end
  for _, chord in ipairs(one.chords) do
    begin_chord(unpack(chord))
  end
end

local function finish(one)
  local answer
  if one.id == '' then
    answer = is_none(one.stream) and 1 or 1 - redis.call('EXISTS', one.stream)
  else
    answer = held(one.stream, ARGV[1], ARGV[2], one.id, one.fence)
  end
  if answer ~= 1 then
    return answer
  end
  local complete = one.parts and finish_canvas(one)
  if one.record ~= '' then
    store_result(one.result, one.record, one.keep_s)
  end
  if complete then
    return complete
  end
  for _, message in ipairs(one.following) do
    enqueue(unpack(message))
  end
  for _, body in ipairs(one.bodies or {}) do
    join_parts(unpack(body)) -- last: if a queue refuses one, its chord starts again
  end
  if one.reason ~= '' then
    dead_letter(one.stream, ARGV[1], one.id, one.dead, ARGV[3], one.level, one.fence, one.reason)
  elseif one.id ~= '' then
    redis.call('XACK', one.stream, ARGV[1], one.id)
    redis.call('XDEL', one.stream, one.id)
  elseif not is_none(one.stream) then
    redis.call('SET', one.stream, '1', 'EX', KEEP_S)
  end
  if one.claim then
    pcall(free_claim, unpack(one.claim))
  end
  for _, mark in ipairs(one.marks) do
    redis.call('EXPIRE', unpack(mark))
  end
  return 1
end

local function acknowledge(one)
  local answer = held(one.stream, ARGV[1], ARGV[2], one.id, one.fence)
  if answer == 1 then
    redis.call('XACK', one.stream, ARGV[1], one.id)
    redis.call('XDEL', one.stream, one.id)
  end
  return answer
end

-- Reads what `one` has beside its acknowledgement.
local function read_rest(one, count)
  one.dead, one.result = next_keys(2)
  one.level, one.reason, one.record, one.keep_s = next_args(4)
  one.following = {}
  if string.byte(count) == 33 then -- "!"
    count = string.sub(count, 2)
    one.claim = { next_args(4) }
  end
  one.marks = {}
  while string.byte(count) == 42 do -- "*"
    count = string.sub(count, 2)
    one.marks[#one.marks + 1] = { next_keys(1), next_args(1) }
  end
  for n = 1, tonumber(count) do
    local stream, later, bell = next_keys(3)
    local level, due_ms, head, body, tenant = next_args(5)
    one.following[n] = { stream, later, bell, level, tonumber(due_ms), head, body, tenant }
  end
  if string.byte(count) == 43 then -- "+"
    read_canvas(one)
  end
end

local answers = {}
while arg < #ARGV do
  local one, count, step = {}, next_args(1), acknowledge
  one.stream = next_keys(1)
  one.id, one.fence = next_args(2)
  if count ~= '' then
    step = finish
    read_rest(one, count)
  end
  local done, answer = pcall(step, one)
  if not done then
    answer = type(answer) == 'table' and answer.err or tostring(answer)
  end
  answers[#answers + 1] = answer
end
return answers
