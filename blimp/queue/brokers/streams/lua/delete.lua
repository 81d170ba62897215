-- Deletes a queue and its bindings. Dead letters stay.
-- KEYS[1]  the queue's list of exchanges    KEYS     then whatever else goes with it
-- ARGV[1]  the queue    ARGV[2]  what the key of an exchange begins with
-- Returns the exchanges whose bindings have changed.
local changed = {}
for _, exchange in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  local key = ARGV[2] .. exchange
  for _, field in ipairs(redis.call('HKEYS', key)) do
    if string.sub(field, 1, 1) == 'b' and cjson.decode(string.sub(field, 2))[3] == ARGV[1] then
      redis.call('HDEL', key, field)
      redis.call('HINCRBY', key, 'version', 1)
      changed[#changed + 1] = exchange
    end
  end
end
redis.call('DEL', unpack(KEYS))
return changed
