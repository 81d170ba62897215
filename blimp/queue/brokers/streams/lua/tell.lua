-- Sends to the listeners of a fanout exchange, and keeps little. A full server refuses it: events
-- are no reason to take the memory that a stop needs.
-- KEYS[1]  stream of the exchange
-- ARGV[1]  messages to keep    ARGV[2]  ms to keep each    ARGV[3]  head    ARGV[4]  body
local time = redis.call('TIME')
redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'h', ARGV[3], 'b', ARGV[4])
local oldest_ms = time[1] * 1000 + math.floor(time[2] / 1000) - ARGV[2]
redis.call('XTRIM', KEYS[1], 'MINID', '~', string.format('%.0f', oldest_ms))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
