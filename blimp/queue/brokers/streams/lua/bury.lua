-- Moves one delivery to the dead letters, if who asks still holds it.
-- KEYS[1]  stream    KEYS[2]  dead letters
-- ARGV[1]  group    ARGV[2]  consumer    ARGV[3]  entry id    ARGV[4]  fence
-- ARGV[5]  most dead letters to keep    ARGV[6]  lane    ARGV[7]  reason
-- Returns 1 moved, 0 settled before, -1 held by someone else.
local answer = held(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4])
if answer == 1 then
  bury(KEYS[1], ARGV[1], ARGV[3], KEYS[2], ARGV[5], ARGV[6], ARGV[4], ARGV[7])
end
return answer
