-- Says what the pool holds, after what is past its time has ended.
-- KEYS     see pool.lua
-- ARGV[2]  '1': everything is compared with the hash of executors, and put right
-- ARGV[3]  of one executor only, '' for all
-- Returns {counters, free, busy, waiting}: names and numbers in turn; executors; {executor,
-- holder, token, µs held, µs left, '1' where it leaves} of each; holders in order.
if ARGV[2] == '1' then
  repair()
end
wake()

local busy = {}
local function show(executor)
  local grant = read(executor)
  if grant then
    local until_us = tonumber(redis.call('ZSCORE', due, executor)) or now_us
    busy[#busy + 1] = { executor, grant.holder, grant.token,
      text(now_us - tonumber(grant.since_us)), text(until_us - now_us),
      grant.is_leaving and '1' or '0' }
  end
end

if ARGV[3] ~= '' then
  show(ARGV[3])
  return { {}, {}, busy, {} }
end
for _, executor in ipairs(redis.call('ZRANGE', due, 0, -1)) do
  show(executor)
end
return { redis.call('HGETALL', counts), redis.call('ZRANGE', free, 0, -1), busy,
  redis.call('ZRANGE', waiting, 0, -1) }
