-- Forgets the consumer that leaves and those long silent, where they hold nothing.
-- KEYS     streams
-- ARGV[1]  group    ARGV[2]  consumer that leaves    ARGV[3]  silent for, ms
forget(KEYS, ARGV[1], ARGV[2], ARGV[3])
return 0
