-- Counts what is in each lane of several queues.
-- KEYS     of each queue: one stream per lane, schedule, dead letters
-- ARGV[1]  group    ARGV[2]  the name that stands for nobody    ARGV[3]  lanes of a queue
-- Returns {seconds, microseconds}, then of each queue a list: of each lane ready, in flight, age
-- of the oldest that waits in ms or -1; then scheduled and dead. -1 stands for what cannot be read.
local group, nobody, lanes = ARGV[1], ARGV[2], tonumber(ARGV[3])
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

local function number(answer)
  return type(answer) == 'number' and answer or -1
end

local function age_ms(entry)
  return math.max(0, now_ms - tonumber(string.match(entry, '^%d+')))
end

local function lane(key)
  local length = redis.pcall('XLEN', key)
  if type(length) ~= 'number' then
    return { -1, -1, -1 }
  end
  if length == 0 then
    return { 0, 0, -1 }
  end
  local taken, last, oldest_ms = 0, '-', -1
  local summary = redis.pcall('XPENDING', key, group)
  if not summary.err then
    for _, one in ipairs(summary[4] or {}) do
      if one[1] ~= nobody then
        taken = taken + tonumber(one[2])
      end
    end
    local back = redis.call('XPENDING', key, group, '-', '+', 1, nobody)
    if back[1] then
      oldest_ms = age_ms(back[1][1])
    end
    for _, one in ipairs(redis.call('XINFO', 'GROUPS', key)) do
      local fields = {}
      for at = 1, #one, 2 do
        fields[one[at]] = one[at + 1]
      end
      if fields['name'] == group then
        last = '(' .. fields['last-delivered-id']
      end
    end
  end
  local next = redis.call('XRANGE', key, last, '+', 'COUNT', 1)
  if next[1] then
    oldest_ms = math.max(oldest_ms, age_ms(next[1][1]))
  end
  return { math.max(0, length - taken), taken, oldest_ms }
end

local found = { { tonumber(time[1]), tonumber(time[2]) } }
for first = 1, #KEYS, lanes + 2 do
  local queue = {}
  for at = first, first + lanes - 1 do
    for _, figure in ipairs(lane(KEYS[at])) do
      queue[#queue + 1] = figure
    end
  end
  queue[#queue + 1] = number(redis.pcall('ZCARD', KEYS[first + lanes]))
  queue[#queue + 1] = number(redis.pcall('XLEN', KEYS[first + lanes + 1]))
  found[#found + 1] = queue
end
return found
