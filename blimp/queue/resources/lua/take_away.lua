-- Ends the grant of an executor, which goes back into the pool: its holder is told at his next
-- renewal, and his token is worth nothing.
-- KEYS     see pool.lua
-- ARGV[2]  executor
-- Returns the holder, '' where there was none.
local grant = read(ARGV[2])
if grant then
  give_back(ARGV[2], grant, 'taken away')
  count('taken_away')
end
wake()
return grant and grant.holder or ''
