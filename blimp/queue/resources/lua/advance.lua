-- Has every token to come be greater than any that the server forgot: the last one is at least
-- the time from now on.
-- KEYS     see pool.lua
-- Returns the last token.
local last = text(math.max(known('token'), now_us))
redis.call('HSET', counts, 'token', last)
wake()
return last
