-- Counts one part of a chord, where that is a step of its own; see part.lua.
-- KEYS[1..5]  j t s d c of the chord
-- ARGV[1]  `<task id>:<place>`  ARGV[2]  place  ARGV[3]  entry  ARGV[4]  seconds to keep it
-- Returns 2 where this part is to begin the body, else 1.
return count_part(KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], unpack(ARGV))
