-- The state of one key: what all encodings have in common.
--
--   byte  1      tag: encoding and version. 1, 2 sliding log (5- and 6-byte
--                stamps), 3 sliding counter, 4 GCRA, 5 fixed window. A changed
--                encoding gets a new number; an unknown one is left alone.
--   bytes 2-8    newest: the key's own time of its last charge, µs
--   bytes 9-15   offset: how far the key's own clock is ahead of Redis's, µs
--   from 16 on   the algorithm's own fields
--
-- The key's own clock is Redis's plus the offset. When Redis's clock steps
-- back, so that the key's would fall behind its newest charge, the offset grows
-- by the difference: the key's time goes on from there at its normal pace.
-- Nothing is granted again, and nothing is frozen (law 5).

local HEADER = 15
local PREFIX = 128 -- bytes read at first: the whole of most states

local call, try = redis.call, redis.pcall

-- Redis's clock in µs, or the clock of a test or a replay.
local clock, virtual
if ARGV[1] == '' then
  local t = call('TIME')
  clock, virtual = t[1] * 1000000 + t[2], false
else
  clock, virtual = tonumber(ARGV[1]), true
end

-- Reads a key. Returns nil when it holds something that is not ours.
local function open(key)
  local raw = try('GETRANGE', key, 0, PREFIX - 1)
  if type(raw) == 'table' then
    return nil
  end
  local s = { key = key, raw = raw, tag = 0, newest = 0, offset = 0, now = clock }
  if raw == '' then
    return s
  end
  if #raw < HEADER then
    return nil
  end
  s.tag = byte(raw)
  s.newest = unpack_int(raw, 2, 7)
  s.offset = unpack_int(raw, 9, 7)
  s.now = clock + s.offset
  if s.now < s.newest then
    local step = s.newest - s.now
    s.offset = s.offset + step
    s.now = s.newest
    call('SETRANGE', key, 8, pack_int(s.offset, 7))
    if not virtual then
      -- The expiry was set on the clock that has stepped back: move it along.
      call('PEXPIRE', key, math.max(1, call('PTTL', key) - floor(step / 1000)))
    end
  end
  return s
end

-- The header to write with a charge made now.
local function header(tag, s)
  return char(tag) .. pack_int(s.now, 7) .. pack_int(s.offset, 7)
end

-- The option and argument that make a key expire at the key's own time t, which
-- is when it can no longer change a decision (law 8). Under a virtual clock,
-- which runs at another speed than Redis's expiry, keys merely live long enough.
local function expiry(s, t)
  if virtual then
    return 'PX', string.format('%.0f', 3600000 + math.max(0, math.ceil((t - s.now) / 1000)))
  end
  return 'PXAT', string.format('%.0f', math.ceil((t - s.offset) / 1000))
end

local function store(s, value, t)
  call('SET', s.key, value, expiry(s, t))
end

local function expire(s, t)
  local option, ms = expiry(s, t)
  if option == 'PX' then
    call('PEXPIRE', s.key, ms)
  else
    call('PEXPIREAT', s.key, ms)
  end
end

-- Each algorithm registers itself here under its code, with four functions:
--   look(s, rule)        reads the rest of the state; sets s.free, the units free now
--   wait(s, rule, cost)  µs until cost units are free, if nothing else happens
--   take(s, rule, cost)  charges cost units and writes the state
--   reset(s, rule)       µs until the key is as if never used
local algorithms = {}

-- By tag: how many units a state of that encoding may hold, never too few. When
-- a rule's algorithm changes, the new one starts with that many units, all
-- charged at the key's newest charge: no earlier than they were, so the change
-- never grants anything twice.
local held = {}

local function carried(s, rule)
  return math.min(rule.quota, held[s.tag](s, rule))
end
