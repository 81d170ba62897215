-- Delivers up to `room` messages and records them as held, in one step:
-- 1. what is due moves from the schedule into its lane;
-- 2. lane by lane, what was put back or whose holder is dead, then what is new;
-- 3. what was delivered too often goes to the dead letters instead, and so does what is older
--    than its own time to live; what is older than its queue's is dropped.
-- KEYS     for each queue: one stream per lane, bell, schedule, dead letters, time to live
-- ARGV[1]  group    ARGV[2]  consumer    ARGV[3]  room    ARGV[4]  lease, ms
-- ARGV[5]  most deliveries    ARGV[6]  most dead letters to keep    ARGV[7]  number of lanes
-- ARGV[8]  ms before it is due that a message may leave the schedule
-- Returns {server's ms, ms when the next one is due or -1, deliveries, how many had expired}; a
-- delivery is {number of its queue, lane, entry id, fence, fields}.
-- What was delivered more than half as often as it may be is delivered alone: it may be what
-- kills its holders, and whatever they have in hand with it is counted too.
-- What the consumer itself holds is never taken here, however idle: a holder that was
-- stopped for a while and wakes must find its own messages its own, not new ones.
local group, consumer, room, lease_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local most, limit, lanes = tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7])
local SWEEP = 100
local stride = lanes + 4
local queues = #KEYS / stride
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local due_ms, next_due_ms = now_ms + tonumber(ARGV[8]), -1
local taken, expired = {}, 0
local ttl_ms = {} -- of each queue, false for ever

local function pending(stream, ...)
  local found = redis.pcall('XPENDING', stream, group, ...)
  if found.err then
    redis.call('XGROUP', 'CREATE', stream, group, '0', 'MKSTREAM')
    return {}
  end
  return found
end

-- Says whether an entry is too old to be delivered, and ends it then.
local function expire(queue, lane, entry, deliveries)
  local own_ms, fields = nil, entry[2]
  for n = 5, #fields, 2 do
    if fields[n] == 'x' then
      own_ms = tonumber(fields[n + 1])
    end
  end
  local limit_ms = ttl_ms[queue]
  if not own_ms and not limit_ms then
    return false
  end
  local age_ms = now_ms - tonumber(string.match(entry[1], '^%d+'))
  local stream, dead = KEYS[queue * stride + lane + 1], KEYS[queue * stride + lanes + 3]
  if own_ms and age_ms >= own_ms and redis.call('PTTL', stream) < 0 then
    bury(stream, group, entry[1], dead, limit, lane, deliveries,
      'expired: waited ' .. age_ms .. ' ms of ' .. own_ms)
  elseif own_ms and age_ms >= own_ms or limit_ms and age_ms >= limit_ms then
    redis.call('XACK', stream, group, entry[1]) -- its queue expires too: nobody looks there
    redis.call('XDEL', stream, entry[1])
  else
    return false
  end
  expired = expired + 1
  return true
end

local function deliver(queue, lane, entry, fence)
  if not expire(queue, lane, entry, fence - 1) then
    taken[#taken + 1] = { queue, lane, entry[1], fence, entry[2] }
    room = room - 1
  end
end

for queue = 0, queues - 1 do
  local base = queue * stride
  local bell, later = KEYS[base + lanes + 1], KEYS[base + lanes + 2]
  for _, ring in ipairs(pending(bell, '-', '+', SWEEP)) do
    if ring[2] == consumer or ring[3] > lease_ms then
      redis.call('XACK', bell, group, ring[1])
      redis.call('XDEL', bell, ring[1])
    end
  end
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', later, '-inf', due_ms, 'LIMIT', 0, SWEEP)) do
    local message = cmsgpack.unpack(member)
    redis.call('XADD', KEYS[base + message[1] + 1], '*', unpack(message[2]))
    redis.call('ZREM', later, member)
  end
  ttl_ms[queue] = tonumber(redis.call('GET', KEYS[base + stride]))
  local first = redis.call('ZRANGE', later, 0, 0, 'WITHSCORES')
  if first[2] then
    local then_ms = math.max(0, tonumber(first[2]) - ARGV[8])
    next_due_ms = next_due_ms < 0 and then_ms or math.min(next_due_ms, then_ms)
  end
end

for lane = 0, lanes - 1 do
  for queue = 0, queues - 1 do
    local base = queue * stride
    local stream, dead = KEYS[base + lane + 1], KEYS[base + lanes + 3]
    for _, old in ipairs(pending(stream, 'IDLE', lease_ms, '-', '+', SWEEP)) do
      if room > 0 and old[2] ~= consumer then
        if old[4] >= most then
          bury(stream, group, old[1], dead, limit, lane, old[4],
            'delivered ' .. old[4] .. ' times without being completed')
        elseif old[4] <= most / 2 or #taken == 0 then
          local entry = redis.call('XCLAIM', stream, group, consumer, 0, old[1])[1]
          if entry then
            deliver(queue, lane, entry, old[4] + 1)
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
        deliver(queue, lane, entry, 1)
      end
      if not new or expired > most_expired then
        break -- whoever asked looks again at once
      end
    end
  end
end
return { now_ms, next_due_ms, taken, expired }
