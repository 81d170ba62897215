-- Put before the scripts that settle a delivery: who holds it?
-- Returns 1 where `consumer` holds entry `id` as its `fence`-th delivery, -1 where another
-- delivery of it is under way or waits, 0 where it was settled or never delivered.
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
local function bury(stream, group, id, dead, limit, lane, deliveries, reason)
  local found = redis.call('XRANGE', stream, id, id)
  if found[1] then
    redis.call('XADD', dead, 'MAXLEN', '~', limit, '*', 'reason', reason, 'lane', lane,
      'deliveries', deliveries, 'entry', id, unpack(found[1][2]))
  end
  redis.call('XACK', stream, group, id)
  redis.call('XDEL', stream, id)
end
