-- Fleet membership: the instances that share the limits at the moment, and whether Redis still has its data. This
-- is a separate script, which every instance runs about once a second. It is also the limiter's health check, since
-- it needs everything that a decision needs: a server that answers, can be written to, and runs scripts. It uses
-- nothing from the other files, and they use nothing from it.
--
--   KEYS[1]  a sorted set: the instances, each scored by the time from which it counts as gone (µs)
--   KEYS[2]  the same for the instances that have not settled: they hold grants that are
--            not charged here yet
--   KEYS[3]  the generation: a random string, set by the heartbeat that finds none. If it differs
--            from before, Redis has lost its memory
--   KEYS[4]  the sequence of the instance's last heartbeat. If it is below one that was
--            acknowledged, Redis has lost what was written since
--   KEYS[5]  a string: the rules some of whose units will never be charged here, because an
--            instance has lost its records of them, each with the time until which these units
--            matter (µs)
--   ARGV     instance; how long it counts (µs; 0 to leave); sequence of this heartbeat,
--            which only grows, from 1 on; 1 if it has not settled, otherwise, and to leave, 0; the
--            generation to set if there is none; the clock from which on nobody has a score from
--            before the clock last stepped back (µs); then, not to leave, pairs of a rule for which the
--            instance has lost records, and for how much longer these matter (µs)
--   reply    clock (µs), number of instances that count now, number of these that have not
--            settled, generation, the sequence found (-1 if none), and pairs of a rule for which
--            any instance has lost records, and for how much longer these matter (µs)
--
-- Nothing else writes to these keys. A key that is damaged, or of another type, counts as lost and is created anew.
-- If heartbeats failed because of such a key, that would count as an outage for as long as the key lasts.
--
-- A heartbeat that arrives after a later heartbeat of its instance (it was in flight while Redis hung) changes
-- nothing. If the instance has left meanwhile, it counts once more, as long as any heartbeat does.
--
-- Generation and sequence must outlive an outage: without the generation, the end of the outage would look like a data
-- loss, and without the sequence a loss is not noticed. The generation is kept for the longest window (366 days). The
-- sequence is kept for a minute for each heartbeat so far, and a day at most. Otherwise, processes that make a few
-- decisions and end without leaving the fleet would fill Redis with sequences that nobody reads again.

local GENERATION_LIFE = '31622400000' -- ms
local SEQUENCE_LIFE, LIFE_PER_HEARTBEAT = 86400000, 60000 -- ms

-- A score further ahead than this is from before a step back of the clock. One that is less far ahead ends soon, and
-- may be that of a version in which instances count for longer.
local MAX_AHEAD = 120000000 -- µs

local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local instance, ttl, sequence = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

-- Returns the reply of a reading command, or nothing if the key's value is of another type.
local function read(...)
  local reply = redis.pcall(...)
  if type(reply) ~= 'table' then
    return reply
  elseif not string.find(reply.err, 'WRONGTYPE', 1, true) then
    redis.call(...) -- fails again
  end
end

local text = read('GETRANGE', KEYS[4], '0', '63') or ''
local survived = string.find(text, '^%d+$') and tonumber(text) or -1
if survived >= 2 ^ 53 then
  survived = -1
end

-- Keeps the instance in a set for the ttl, or removes it. Returns the number of instances in the set.
local function count(key, member)
  if not read('ZCARD', key) then
    redis.call('DEL', key)
  end
  if sequence > survived and member then
    redis.call('ZADD', key, string.format('%.0f', now + ttl), instance)
    redis.call('PEXPIRE', key, string.format('%.0f', math.ceil(ttl / 1000)))
  elseif sequence > survived then
    redis.call('ZREM', key, instance)
  end
  redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.0f', now))
  -- The clock may have stepped back, by itself or by a failover. The instances that are there have had the time to
  -- set a new score; one that has ended would count for as long as the step.
  if now >= tonumber(ARGV[6]) then
    redis.call('ZREMRANGEBYSCORE', key, string.format('%.0f', now + MAX_AHEAD), '+inf')
  end
  return redis.call('ZCARD', key)
end

local size = count(KEYS[1], ttl > 0)
local unsettled = count(KEYS[2], ARGV[4] == '1')
local generation = read('GETRANGE', KEYS[3], '0', '63') or ''
if generation == '' then
  generation = ARGV[5]
end
if ttl == 0 then
  redis.call('DEL', KEYS[4])
else
  redis.call('SET', KEYS[3], generation, 'PX', GENERATION_LIFE)
  local newest = math.max(sequence, survived)
  local life = math.min(SEQUENCE_LIFE, newest * LIFE_PER_HEARTBEAT)
  -- PXAT, because decisions need it, too: a server before Redis 6.2 does not have it, and is refused when a limiter
  -- starts. With PX, it would answer heartbeats and fail every decision.
  redis.call('SET', KEYS[4], string.format('%.0f', newest), 'PXAT', string.format('%.0f', math.floor(now / 1000) + life))
end

-- If there are more than MAX_LOST rules, they are replaced by '*', which stands for all rules. LOST_BYTES is the
-- position of the last byte that is read of their list.
local MAX_LOST, LOST_BYTES, ANY = 64, '8191', '*'

local lost, count_lost, last = {}, 0, 0

local function lose(rule, till)
  till = math.min(till, now + tonumber(GENERATION_LIFE) * 1000)
  if till <= now then
    return
  elseif not lost[rule] then
    count_lost = count_lost + 1
  end
  lost[rule], last = math.max(lost[rule] or 0, till), math.max(last, till)
end

local text = read('GETRANGE', KEYS[5], '0', LOST_BYTES)
for rule, till in string.gmatch(text or '', '(%S+) (%d+)\n') do
  lose(rule, tonumber(till))
end
if sequence > survived then
  for i = 7, #ARGV, 2 do
    lose(ARGV[i], now + ARGV[i + 1])
  end
end
if count_lost > MAX_LOST then
  lost = { [ANY] = last }
end
if last > now then
  local lines = {}
  for rule, till in pairs(lost) do
    lines[#lines + 1] = rule .. string.format(' %.0f\n', till)
  end
  redis.call('SET', KEYS[5], table.concat(lines), 'PX', string.format('%.0f', math.ceil((last - now) / 1000)))
elseif text ~= '' then
  redis.call('DEL', KEYS[5])
end
local reported = {}
for rule, till in pairs(lost) do
  reported[#reported + 1], reported[#reported + 2] = rule, till - now
end
return { now, size, unsettled, generation, survived, reported }
