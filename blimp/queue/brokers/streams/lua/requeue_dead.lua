-- Moves one dead letter back to the end of its lane, its deliveries and its end forgotten.
-- KEYS[1]  dead letters    KEYS     one stream per lane, then the keys to forget
-- ARGV[1]  id of the dead letter    ARGV[2]  number of lanes
-- ARGV[3]  its head from now on, "" for the one it has
-- Returns 1 moved, 0 not there: then nothing is forgotten.
local found = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])[1]
if not found then
  return 0
end
local fields = {}
for n = 1, #found[2], 2 do
  fields[found[2][n]] = found[2][n + 1]
end
for n = 2 + tonumber(ARGV[2]), #KEYS do
  redis.call('DEL', KEYS[n])
end
local head = ARGV[3] ~= '' and ARGV[3] or fields.h
redis.call('XADD', KEYS[2 + tonumber(fields.lane)], '*', 'h', head, 'b', fields.b)
redis.call('XDEL', KEYS[1], ARGV[1])
return 1
