-- Moves one unacknowledged message back into its queue, once, whoever asks first.
-- KEYS[1]  hash of unacknowledged messages      KEYS[2]  their index
-- KEYS[3]  the queue's list
-- ARGV[1]  delivery tag    ARGV[2]  the message as it is to be delivered again
-- Returns 1 when moved, 0 when it was acknowledged or moved already.
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then
  return 0
end
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('RPUSH', KEYS[3], ARGV[2])
return 1
