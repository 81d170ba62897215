#!lua flags=allow-oom
-- Tells whoever listens on a fanout exchange; on a full server, too: a stop must get through.
-- KEYS[1]  stream of the exchange
-- ARGV[1]  messages to keep    ARGV[2]  ms to keep them after the last    ARGV[3]  head
-- ARGV[4]  body
redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'h', ARGV[3], 'b', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
