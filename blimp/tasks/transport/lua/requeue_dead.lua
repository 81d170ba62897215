-- Moves one dead letter back to the end of its lane, its deliveries forgotten.
-- KEYS[1]  dead letters    KEYS     then one stream per lane
-- ARGV[1]  id of the dead letter
-- Returns 1 moved, 0 not there.
local found = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])[1]
if not found then
  return 0
end
local fields = {}
for n = 1, #found[2], 2 do
  fields[found[2][n]] = found[2][n + 1]
end
redis.call('XADD', KEYS[2 + tonumber(fields.lane)], '*', 'h', fields.h, 'b', fields.b)
redis.call('XDEL', KEYS[1], ARGV[1])
return 1
