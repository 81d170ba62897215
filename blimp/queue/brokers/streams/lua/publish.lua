-- Puts one message into every queue it is routed to, now or when it is due, all or none, and
-- only once: a repetition of the same publish puts nothing.
-- KEYS[1]  the exchange's bindings    KEYS[2]  hash of what was published before, "" for none
-- KEYS     then for each queue: stream of the lane, schedule, bell, sign of life, time to live
-- ARGV[1]  version of the bindings that the sender routed by, "" for none
-- ARGV[2]  server's ms when it is due, 0 for now    ARGV[3]  lane
-- ARGV[4]  head    ARGV[5]  body    ARGV[6]  its time to live, ms, "" for ever
-- ARGV[7]  number of this publish in the hash    ARGV[8]  ms to remember it, after the last
-- ARGV[9]  group    ARGV[10] lease, ms
--          then for each queue 1 where it needs a sign of life, or 0
-- Returns {1, the numbers of the queues (from 0) that have died and got nothing}, or {0, the
-- bindings} where those have changed since, and nothing was done.
local REMEMBERED = 64 -- of each sender; who repeats one has not sent many others since
local SWEEP = 100
local before, number = KEYS[2], ARGV[7]
if ARGV[1] ~= '' and (redis.call('HGET', KEYS[1], 'version') or '0') ~= ARGV[1] then
  return { 0, redis.call('HGETALL', KEYS[1]) }
end
if before ~= '' and redis.call('HEXISTS', before, number) == 1 then
  return { 1, {} }
end

-- Drops from a lane what waited for longer than its queue allows: whoever takes from it may be
-- gone, and it would grow for ever. What somebody holds stays, and so does all that is younger.
local function trim(lane, limit_ms)
  local time = redis.call('TIME')
  local oldest_ms = time[1] * 1000 + math.floor(time[2] / 1000) - limit_ms
  if oldest_ms <= 0 then
    return
  end
  local bound = string.format('%.0f', oldest_ms)
  local held = redis.pcall('XPENDING', lane, ARGV[9], '-', '(' .. bound, SWEEP)
  for n, entry in ipairs(held.err and {} or held) do
    if entry[3] <= tonumber(ARGV[10]) then
      bound = entry[1]
      break
    end
    redis.call('XACK', lane, ARGV[9], entry[1]) -- its holder is dead, or it was put back
    redis.call('XDEL', lane, entry[1])
    bound = n == SWEEP and entry[1] or bound
  end
  redis.call('XTRIM', lane, 'MINID', '~', bound)
end

local gone = {}
for n = 0, (#KEYS - 2) / 5 - 1 do
  local lane, later, bell, alive, ttl = unpack(KEYS, 5 * n + 3, 5 * n + 7)
  if ARGV[11 + n] == '1' and redis.call('EXISTS', alive) == 0 then
    gone[#gone + 1] = n
  else
    local limit_ms = redis.call('GET', ttl) -- a key of a wrong type stops it before all else
    enqueue(lane, later, bell, ARGV[3], tonumber(ARGV[2]), ARGV[4], ARGV[5], ARGV[6])
    if limit_ms then
      trim(lane, limit_ms)
    end
    if ARGV[11 + n] == '1' then
      local left_ms = redis.call('PTTL', alive) -- what is new expires with its queue
      for _, key in ipairs({ lane, later, bell }) do
        redis.call('PEXPIRE', key, left_ms)
      end
    end
  end
end
if before ~= '' then -- last: what could not be put may be sent again
  redis.call('HSET', before, number, '')
  redis.call('HDEL', before, number - REMEMBERED)
  redis.call('PEXPIRE', before, ARGV[8])
end
return { 1, gone }
