-- Counts the messages of one queue.
-- KEYS     one stream per lane, schedule, dead letters
-- ARGV[1]  group    ARGV[2]  the name that stands for nobody
-- Returns {ready, in flight, scheduled, dead, age of the oldest in ms or -1}.
local lanes = #KEYS - 2
local ready, in_flight, oldest_ms = 0, 0, -1
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
for lane = 1, lanes do
  local length = redis.call('XLEN', KEYS[lane])
  local taken = 0
  local summary = redis.pcall('XPENDING', KEYS[lane], ARGV[1])
  if not summary.err and summary[1] > 0 then
    for _, one in ipairs(summary[4]) do
      if one[1] ~= ARGV[2] then
        taken = taken + tonumber(one[2])
      end
    end
  end
  ready = ready + math.max(0, length - taken)
  in_flight = in_flight + taken
  local first = redis.call('XRANGE', KEYS[lane], '-', '+', 'COUNT', 1)
  if first[1] then
    oldest_ms = math.max(oldest_ms, now_ms - tonumber(string.match(first[1][1], '^%d+')))
  end
end
return { ready, in_flight, redis.call('ZCARD', KEYS[lanes + 1]),
  redis.call('XLEN', KEYS[lanes + 2]), oldest_ms }
