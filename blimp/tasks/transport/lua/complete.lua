-- Ends a task in one step: who asks still holds it, then its result, then its message is gone.
-- KEYS[1]  celery-task-meta-<id>, key and channel    KEYS[2]  the stream of the delivery
-- ARGV[1]  the record, JSON    ARGV[2]  seconds to keep it
-- ARGV[3]  group    ARGV[4]  consumer    ARGV[5]  entry id    ARGV[6]  fence
-- Returns 1 completed, 0 settled before, -1 held by someone else: then nothing is written.
-- A final record that stands already stays, as in store.lua; the message is gone all the same.
local answer = held(KEYS[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6])
if answer == 1 then
  store_result(KEYS, ARGV)
  redis.call('XACK', KEYS[2], ARGV[3], ARGV[5])
  redis.call('XDEL', KEYS[2], ARGV[5])
end
return answer
