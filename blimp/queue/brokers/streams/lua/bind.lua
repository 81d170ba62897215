#!lua flags=allow-oom
-- Adds or removes one binding of an exchange, and counts the change.
-- KEYS[1]  the exchange's bindings    KEYS[2]  the queue's list of exchanges
-- ARGV[1]  add, remove or type    ARGV[2]  the binding, or the type    ARGV[3]  exchange
-- Returns 1 where something changed.
-- A full server takes it all the same: an emergency broadcast declares its exchange first.
local changed
if ARGV[1] == 'add' then
  changed = redis.call('HSET', KEYS[1], 'b' .. ARGV[2], '')
  redis.call('SADD', KEYS[2], ARGV[3])
elseif ARGV[1] == 'remove' then
  changed = redis.call('HDEL', KEYS[1], 'b' .. ARGV[2])
else
  changed = redis.call('HGET', KEYS[1], 'type') ~= ARGV[2] and 1 or 0
  redis.call('HSET', KEYS[1], 'type', ARGV[2])
end
if changed == 1 then
  redis.call('HINCRBY', KEYS[1], 'version', 1)
end
return changed
