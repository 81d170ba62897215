-- Says of how many parts chords are; see part.lua.
-- KEYS  s of each chord    ARGV[1]  seconds to keep it    ARGV[2…]  their sizes
for number, key in ipairs(KEYS) do
  begin_chord(key, ARGV[number + 1], ARGV[1])
end
return #KEYS
