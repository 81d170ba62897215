-- Put before the scripts that begin and leave: forgets consumers that hold nothing, the one
-- named `leaving` ("" for none) and those silent for `silent_ms`.
-- Removing a consumer drops what it has pending, so only those with nothing are removed.
local function forget(streams, group, leaving, silent_ms)
  for _, stream in ipairs(streams) do
    local consumers = redis.pcall('XINFO', 'CONSUMERS', stream, group)
    if not consumers.err then
      for _, flat in ipairs(consumers) do
        local one = {}
        for n = 1, #flat, 2 do
          one[flat[n]] = flat[n + 1]
        end
        if one.pending == 0 and (one.name == leaving or one.idle > tonumber(silent_ms)) then
          redis.call('XGROUP', 'DELCONSUMER', stream, group, one.name)
        end
      end
    end
  end
end

