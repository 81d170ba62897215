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
local gone = {}
for n = 0, (#KEYS - 1) / 4 - 1 do
  local lane, later, bell, alive = unpack(KEYS, 4 * n + 2, 4 * n + 5)
  if ARGV[6 + n] == '1' and redis.call('EXISTS', alive) == 0 then
    gone[#gone + 1] = n
  else
    enqueue(lane, later, bell, ARGV[3], tonumber(ARGV[2]), ARGV[4], ARGV[5])
  end
end
return gone
