-- Renews leases: resets the idle time of what who asks still holds.
-- KEYS[n]  the stream of the n-th delivery
-- ARGV[1]  group    ARGV[2]  consumer    then for each delivery: entry id, fence
-- Returns for each 1 renewed, 0 settled, -1 held by someone else, 2 unknown: the server was
-- emptied, or came back without its last moments, and nobody has it.
-- JUSTID leaves the delivery count, which is the fence, as it is.
local function is_unknown(stream, id)
  local about = redis.pcall('XINFO', 'STREAM', stream)
  if about.err then
    return true
  end
  for n = 1, #about, 2 do
    if about[n] == 'last-generated-id' then
      local last_ms, last = string.match(about[n + 1], '(%d+)-(%d+)')
      local ms, number = string.match(id, '(%d+)-(%d+)')
      last_ms, ms = tonumber(last_ms), tonumber(ms)
      return ms > last_ms or ms == last_ms and tonumber(number) > tonumber(last)
    end
  end
  return false
end

local answers = {}
for n, stream in ipairs(KEYS) do
  local id, fence = ARGV[2 * n + 1], ARGV[2 * n + 2]
  answers[n] = held(stream, ARGV[1], ARGV[2], id, fence)
  if answers[n] == 1 then
    redis.call('XCLAIM', stream, ARGV[1], ARGV[2], 0, id, 'JUSTID')
  elseif answers[n] == 0 and is_unknown(stream, id) then
    answers[n] = 2
  end
end
return answers
