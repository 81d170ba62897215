-- Renews leases: resets the idle time of what who asks still holds.
-- KEYS[n]  the stream of the n-th delivery
-- ARGV[1]  group    ARGV[2]  consumer    then for each delivery: entry id, fence
-- Returns for each 1 renewed, 0 settled, -1 held by someone else.
-- JUSTID leaves the delivery count, which is the fence, as it is.
local answers = {}
for n, stream in ipairs(KEYS) do
  local id, fence = ARGV[2 * n + 1], ARGV[2 * n + 2]
  answers[n] = held(stream, ARGV[1], ARGV[2], id, fence)
  if answers[n] == 1 then
    redis.call('XCLAIM', stream, ARGV[1], ARGV[2], 0, id, 'JUSTID')
  end
end
return answers
