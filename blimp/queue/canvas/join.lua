-- Notes that a chord's body has begun; see part.lua.
-- KEYS[1..5]  j t s d c of the chord    ARGV[1]  seconds to remember it
-- Returns 1, or 0 where it was noted before.
return join_parts(KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[1]) and 1 or 0
