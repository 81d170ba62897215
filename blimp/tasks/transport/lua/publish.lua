-- Puts one message into every queue it is routed to, now or when it is due, all or none.
-- KEYS[1]  the exchange's bindings
-- KEYS     then for each queue: stream of the lane, schedule, bell, sign of life
-- ARGV[1]  version of the bindings that the sender routed by, "" for none
-- ARGV[2]  server's ms when it is due, 0 for now    ARGV[3]  lane
-- ARGV[4]  head    ARGV[5]  body    then for each queue 1 where it needs a sign of life, or 0
-- Returns -1 where the bindings have changed since, else the numbers of the queues (from 0)
-- that have died and got nothing.
if ARGV[1] ~= '' and (redis.call('HGET', KEYS[1], 'version') or '0') ~= ARGV[1] then
  return -1
end
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local due_ms = tonumber(ARGV[2])
local gone = {}
for n = 0, (#KEYS - 1) / 4 - 1 do
  local lane, later, bell, alive = unpack(KEYS, 4 * n + 2, 4 * n + 5)
  if ARGV[6 + n] == '1' and redis.call('EXISTS', alive) == 0 then
    gone[#gone + 1] = n
  elseif due_ms <= now_ms then
    redis.call('XADD', lane, '*', 'h', ARGV[4], 'b', ARGV[5])
  else
    local member = cmsgpack.pack({ tonumber(ARGV[3]), ARGV[4], ARGV[5] })
    redis.call('ZADD', later, due_ms, member)
    if redis.call('ZRANGE', later, 0, 0)[1] == member then
      redis.call('XADD', bell, 'MAXLEN', '~', 64, '*', 'r', '') -- a reader sleeps too long now
    end
  end
end
return gone
