-- Sliding log: the time stamp of every unit, in a ring inside one string. Exact:
-- a unit has left when it is one window old, and a cost fits when enough have.
--
-- A stamp takes 5 bytes: µs modulo 2^40 (12.7 days), 6 bytes from windows of a
-- quarter of that on. The stamp's full value is found by counting back from the
-- newest charge, which is stored in full; that is sound because the head moves
-- past every unit older than the window before the next one is written, so no
-- stored unit is ever older, seen from the newest, than the longest window used.
--
-- A ring is decided for any limit and window, whatever limit wrote it, so two
-- versions of a service with different limits agree and never re-lay the key. It
-- keeps what the largest of them needs: "keep" units of "longest" time.
--
--   tag 1 (5-byte stamps), tag 2 (6-byte stamps):
--   header, longest (6 bytes), keep (5), capacity (4), head (4), count (4), slots
--
-- longest   longest window used, µs       capacity  slots in the ring
-- keep      largest quota used            head      slot of the oldest unit
--                                         count     units stored

local LOG5, LOG6 = 1, 2
local SLOTS = HEADER + 23 -- the slots start behind this byte

local log = {}

local function width_for(window)
  if window < 2 ^ 38 then
    return 5
  end
  return 6
end

-- The time stamp of the i-th stored unit, counted from the oldest as 0.
local function stamp(s, i)
  if s.carried then
    return s.newest
  end
  local from = SLOTS + (s.head + i) % s.capacity * s.width
  local slot
  if from + s.width <= #s.raw then
    slot = unpack_int(s.raw, from + 1, s.width)
  else
    slot = unpack_int(call('GETRANGE', s.key, from, from + s.width - 1), 1, s.width)
  end
  return s.newest - (s.newest - slot) % 256 ^ s.width
end

-- How many stored units are a window old or older. Gallops from the oldest on:
-- constant when few have left since last time, logarithmic at worst.
local function expired(s, window)
  local threshold = s.now - window
  if s.count == 0 or s.newest <= threshold then
    return s.count
  end
  if stamp(s, 0) > threshold then
    return 0
  end
  -- Unit low has left, unit high has not (the newest has not, see above).
  local low, step = 0, 1
  local high = s.count - 1
  while low + step < high and stamp(s, low + step) <= threshold do
    low = low + step
    step = step * 2
  end
  high = math.min(high, low + step)
  while high - low > 1 do
    local middle = floor((low + high) / 2)
    if stamp(s, middle) <= threshold then
      low = middle
    else
      high = middle
    end
  end
  return high
end

function log.look(s, rule)
  s.width = width_for(rule.window)
  s.longest, s.keep = rule.window, rule.quota
  s.capacity, s.head, s.count = 0, 0, 0
  if s.tag == LOG5 or s.tag == LOG6 then
    s.width = s.tag + 4
    s.longest = math.max(rule.window, unpack_int(s.raw, HEADER + 1, 6))
    s.keep = math.max(rule.quota, unpack_int(s.raw, HEADER + 7, 5))
    s.capacity = unpack_int(s.raw, HEADER + 12, 4)
    s.head = unpack_int(s.raw, HEADER + 16, 4)
    s.count = unpack_int(s.raw, HEADER + 20, 4)
  elseif s.tag ~= 0 then
    s.count = carried(s, rule)
    s.carried = true
  end
  s.left = expired(s, rule.window)
  s.free = math.max(0, rule.quota - (s.count - s.left))
end

function log.wait(s, rule, cost)
  local must_leave = s.count - s.left + cost - rule.quota
  return stamp(s, s.left + must_leave - 1) + rule.window - s.now
end

-- The stored units as one string of slots of the wanted width, oldest first.
local function unroll(s, width)
  if s.count == 0 then
    return ''
  elseif s.carried then
    return rep(pack_int(s.newest % 256 ^ width, width), s.count)
  end
  local raw = s.raw
  if #raw == PREFIX then
    raw = call('GET', s.key)
  end
  local first = math.min(s.count, s.capacity - s.head)
  local slots = sub(raw, SLOTS + s.head * s.width + 1, SLOTS + (s.head + first) * s.width)
    .. sub(raw, SLOTS + 1, SLOTS + (s.count - first) * s.width)
  if width == s.width then
    return slots
  end
  local wide = {}
  for i = 1, s.count do
    local slot = unpack_int(slots, (i - 1) * s.width + 1, s.width)
    wide[i] = pack_int((s.newest - (s.newest - slot) % 256 ^ s.width) % 256 ^ width, width)
  end
  return table.concat(wide)
end

local function fields(s)
  return header(s.width - 4, s)
    .. pack_int(s.longest, 6)
    .. pack_int(s.keep, 5)
    .. pack_int(s.capacity, 4)
    .. pack_int(s.head, 4)
    .. pack_int(s.count, 4)
end

function log.take(s, rule, cost)
  -- Let go of what nobody needs: units older than the longest window, and units
  -- beyond the newest "keep".
  local drop = s.left
  if s.longest ~= rule.window then
    drop = expired(s, s.longest)
  end
  drop = math.max(drop, s.count + cost - s.keep)
  s.count = s.count - drop
  if s.capacity > 0 then
    s.head = (s.head + drop) % s.capacity
  end
  s.left = s.left - drop

  local width = math.max(s.width, width_for(s.longest))
  local expires = s.now + s.longest
  if s.count + cost > s.capacity or width ~= s.width then
    -- Grow by a quarter: a string grown by SETRANGE would double instead.
    local slots = unroll(s, width) .. rep(pack_int(s.now % 256 ^ width, width), cost)
    s.count = s.count + cost
    s.capacity = math.max(s.capacity, s.count, math.min(s.keep, floor(s.count * 1.25) + 4))
    s.head, s.width, s.newest, s.carried = 0, width, s.now, nil
    s.raw = fields(s) .. slots .. rep('\0', s.capacity * width - #slots)
    store(s, s.raw, expires)
  else
    local tail = (s.head + s.count) % s.capacity
    local first = math.min(cost, s.capacity - tail)
    local slot = pack_int(s.now % 256 ^ width, width)
    s.count = s.count + cost
    s.newest = s.now
    call('SETRANGE', s.key, 0, fields(s))
    call('SETRANGE', s.key, SLOTS + tail * width, rep(slot, first))
    if cost > first then
      call('SETRANGE', s.key, SLOTS, rep(slot, cost - first))
    end
    expire(s, expires)
  end
end

function log.reset(s, rule)
  if s.count == 0 then
    return 0
  end
  return math.max(0, s.newest + rule.window - s.now)
end

algorithms[1] = log

held[LOG5] = function(s)
  return unpack_int(s.raw, HEADER + 20, 4)
end
held[LOG6] = held[LOG5]
