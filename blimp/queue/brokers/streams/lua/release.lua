-- Puts deliveries back: they belong to nobody, keep their place in the lane, and wake a reader.
-- KEYS     for each delivery: its stream, its queue's bell
-- ARGV[1]  group    ARGV[2]  consumer    ARGV[3]  the name that stands for nobody
--          then for each delivery: entry id, fence, deliveries to count (the fence, or one
--          less where nobody saw it)
-- Returns for each 1 put back, 0 settled before, -1 held by someone else.
local FOREVER_MS = 1000000000
local answers = {}
for n = 1, #KEYS / 2 do
  local stream, bell = KEYS[2 * n - 1], KEYS[2 * n]
  local id, fence, counted = ARGV[3 * n + 1], ARGV[3 * n + 2], ARGV[3 * n + 3]
  answers[n] = held(stream, ARGV[1], ARGV[2], id, fence)
  if answers[n] == 1 then
    redis.call('XCLAIM', stream, ARGV[1], ARGV[3], 0, id,
      'IDLE', FOREVER_MS, 'RETRYCOUNT', counted, 'JUSTID')
    redis.call('XADD', bell, 'MAXLEN', '~', 64, '*', 'r', '')
  end
end
return answers
