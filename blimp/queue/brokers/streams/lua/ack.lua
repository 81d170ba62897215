-- Completes deliveries: each entry leaves its stream, if who asks still holds it.
-- KEYS[n]  the stream of the n-th delivery
-- ARGV[1]  group    ARGV[2]  consumer    then for each delivery: entry id, fence
-- Returns for each 1 completed, 0 settled before, -1 held by someone else.
local answers = {}
for n, stream in ipairs(KEYS) do
  local id, fence = ARGV[2 * n + 1], ARGV[2 * n + 2]
  answers[n] = held(stream, ARGV[1], ARGV[2], id, fence)
  if answers[n] == 1 then
    redis.call('XACK', stream, ARGV[1], id)
    redis.call('XDEL', stream, id)
  end
end
return answers
