-- Has one consumer begin on queues: the group is on every stream, beginning with the oldest
-- message; whatever the consumer's name has pending and its living holder does not know of is
-- put back (a killed namesake's messages, and those whose delivery was lost with a
-- connection); consumers that were silent for long are forgotten.
-- KEYS     for each queue: one stream per lane, bell
-- ARGV[1]  group    ARGV[2]  consumer    ARGV[3]  the name that stands for nobody
-- ARGV[4]  number of lanes    ARGV[5]  silent for, ms
--          then the entries that are known, each as stream, space, id
-- Returns how many were put back.
local FOREVER_MS = 1000000000
local lanes, back = tonumber(ARGV[4]), 0
local known = {}
for n = 6, #ARGV do
  known[ARGV[n]] = true
end
for n, stream in ipairs(KEYS) do
  redis.pcall('XGROUP', 'CREATE', stream, ARGV[1], '0', 'MKSTREAM') -- BUSYGROUP where it is
  local lane = (n - 1) % (lanes + 1)
  if lane < lanes then
    local pending = redis.pcall('XPENDING', stream, ARGV[1], '-', '+', 1000000, ARGV[2])
    if pending.err then
      pending = {}
    end
    for _, entry in ipairs(pending) do
      if not known[stream .. ' ' .. entry[1]] then
        redis.call('XCLAIM', stream, ARGV[1], ARGV[3], 0, entry[1], 'IDLE', FOREVER_MS, 'JUSTID')
        redis.call('XADD', KEYS[n + lanes - lane], 'MAXLEN', '~', 64, '*', 'r', '')
        back = back + 1
      end
    end
  end
end
forget(KEYS, ARGV[1], '', ARGV[5])
return back
