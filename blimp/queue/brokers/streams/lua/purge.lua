-- Drops what waits in one queue, ready or scheduled; what is held stays.
-- KEYS     one stream per lane, schedule
-- ARGV[1]  group    ARGV[2]  the name that stands for nobody    ARGV[3]  most to drop at once
-- Returns how many were dropped; call again while it is that most or more.
local most, dropped = tonumber(ARGV[3]), 0
for lane = 1, #KEYS - 1 do
  local stream, after = KEYS[lane], '-'
  local groups = redis.pcall('XINFO', 'GROUPS', stream)
  if not groups.err and groups[1] then
    for n = 1, #groups[1], 2 do
      if groups[1][n] == 'last-delivered-id' then
        after = '(' .. groups[1][n + 1]
      end
    end
    for _, back in ipairs(redis.call('XPENDING', stream, ARGV[1], '-', '+', most, ARGV[2])) do
      redis.call('XACK', stream, ARGV[1], back[1])
      dropped = dropped + redis.call('XDEL', stream, back[1])
    end
  end
  for _, entry in ipairs(redis.call('XRANGE', stream, after, '+', 'COUNT', most)) do
    dropped = dropped + redis.call('XDEL', stream, entry[1])
  end
end
local scheduled = KEYS[#KEYS]
dropped = dropped + redis.call('ZCARD', scheduled)
redis.call('DEL', scheduled)
return dropped
