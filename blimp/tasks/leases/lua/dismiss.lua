-- Gives back whatever a holder has, and has it wait no more.
-- KEYS     see pool.lua
-- ARGV[2]  holder
-- Returns the executor, '' where it had none.
local executor = redis.call('HGET', holders, ARGV[2])
local grant = executor and read(executor)
leave_line(ARGV[2])
if grant and grant.holder == ARGV[2] then
  give_back(executor, grant, 'released')
  count('released')
else
  executor = ''
end
wake()
return executor
