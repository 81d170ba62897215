-- Gives back whatever a holder has, and has it wait no more.
-- KEYS     see pool.lua
-- ARGV[2]  holder    ARGV[3]  its rank: what one of a higher has it keeps
-- Returns the executor, '' where it had none.
local executor = redis.call('HGET', holders, ARGV[2])
local grant = executor and read(executor)
leave_line(ARGV[2])
if grant and grant.holder == ARGV[2] and rank_of(grant) <= tonumber(ARGV[3]) then
  give_back(executor, grant, 'released')
  count('released')
else
  executor = ''
end
wake()
return executor
