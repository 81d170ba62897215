-- Forgets consumers that hold nothing: the one that leaves, and those long silent.
-- KEYS     streams
-- ARGV[1]  group    ARGV[2]  consumer that leaves, "" for none    ARGV[3]  silent for, ms
-- Removing a consumer drops what it has pending, so only those with nothing are removed.
for _, stream in ipairs(KEYS) do
  local consumers = redis.pcall('XINFO', 'CONSUMERS', stream, ARGV[1])
  if not consumers.err then
    for _, flat in ipairs(consumers) do
      local one = {}
      for n = 1, #flat, 2 do
        one[flat[n]] = flat[n + 1]
      end
      if one.pending == 0 and (one.name == ARGV[2] or one.idle > tonumber(ARGV[3])) then
        redis.call('XGROUP', 'DELCONSUMER', stream, ARGV[1], one.name)
      end
    end
  end
end
return 0
