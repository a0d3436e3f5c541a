-- Fleet membership: who shares the limits at the moment. A script of its own,
-- run about once a second by every instance; it is also the limiter's ping, since
-- it needs all that a decision needs: a server that answers, that may be written
-- to, and that runs scripts.
--
--   KEYS[1]  a sorted set: instance, scored by when it will count as gone (µs)
--   ARGV     instance, and for how long it is to count (µs; 0 to leave)
--   reply    clock (µs), instances that count now

local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local ttl = tonumber(ARGV[2])

if ttl > 0 then
  redis.call('ZADD', KEYS[1], string.format('%.0f', now + ttl), ARGV[1])
else
  redis.call('ZREM', KEYS[1], ARGV[1])
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
if ttl > 0 then
  redis.call('PEXPIRE', KEYS[1], math.ceil(ttl / 1000))
end
return { now, redis.call('ZCARD', KEYS[1]) }
