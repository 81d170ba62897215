-- Put before the scripts that put messages into queues: into the lane, or the schedule where
-- `due_ms`, on the server's clock, is still to come. `ttl_ms`: nil or "" where it may wait.
local function enqueue(lane_stream, later, bell, lane, due_ms, head, body, ttl_ms)
  local message = { 'h', head, 'b', body }
  if ttl_ms and ttl_ms ~= '' then
    message[5], message[6] = 'x', ttl_ms
  end
  local time = redis.call('TIME')
  if due_ms <= time[1] * 1000 + math.floor(time[2] / 1000) then
    redis.call('XADD', lane_stream, '*', unpack(message))
    return
  end
  local member = cmsgpack.pack({ tonumber(lane), message })
  redis.call('ZADD', later, due_ms, member)
  if redis.call('ZRANGE', later, 0, 0)[1] == member then
    redis.call('XADD', bell, 'MAXLEN', '~', 64, '*', 'r', '') -- a reader sleeps too long now
  end
end

