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

make[1] = function()
  local LOG5, LOG6 = 1, 2
  local SLOTS = HEADER + 23 -- the slots start behind this byte

  local log = {}

  local function width_for(window)
    if window < 2 ^ 38 then
      return 5
    end
    return 6
  end

  -- The time stamp of the i-th unit, counted from the oldest stored one as 0.
  local function stamp(s, i)
    if i >= s.count then
      return s.now -- taken in this run
    elseif s.carried then
      return s.base
    end
    local from = SLOTS + (s.head + i) % s.capacity * s.width
    local slot
    if from + s.width <= #s.raw then
      slot = unpack_int(s.raw, from + 1, s.width)
    else
      slot = unpack_int(call('GETRANGE', s.key, from, from + s.width - 1), 1, s.width)
    end
    return s.base - (s.base - slot) % 256 ^ s.width
  end

  -- How many stored units are a window old or older. Gallops from the oldest on:
  -- constant when few have left since last time, logarithmic at worst.
  local function expired(s, window)
    local threshold = s.now - window
    if s.count == 0 or s.base <= threshold then
      return s.count
    end
    if stamp(s, 0) > threshold then
      return 0
    end
    -- Unit low has left; unit high has not, or there is none.
    local low, step = 0, 1
    local high = s.count
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

  -- The units that count now, under the rule's own window.
  local function live(s)
    return s.count - s.left - s.given + s.added
  end

  function log.look(s, rule)
    s.width = width_for(rule.window)
    s.longest, s.keep = rule.window, rule.quota
    s.capacity, s.head, s.count = 0, 0, 0
    s.base = s.newest -- stored stamps count back from here
    if s.tag == LOG5 or s.tag == LOG6 then
      s.width = s.tag + 4
      s.longest = math.max(rule.window, unpack_int(s.raw, HEADER + 1, 6))
      s.keep = math.max(rule.quota, unpack_int(s.raw, HEADER + 7, 5))
      s.capacity = unpack_int(s.raw, HEADER + 12, 4)
      s.head = unpack_int(s.raw, HEADER + 16, 4)
      s.count = log.held(s)
    elseif s.tag ~= 0 then
      s.count = carried(s, rule)
      s.carried = true
    end
    s.left = expired(s, rule.window)
    s.added, s.given = 0, 0 -- units charged and given back in this run
    s.free = math.max(0, rule.quota - live(s))
  end

  function log.wait(s, rule, cost)
    local must_leave = live(s) + cost - rule.quota
    return stamp(s, s.left + s.given + must_leave - 1) + rule.window - s.now
  end

  function log.take(s, _, cost)
    s.added = s.added + cost
    s.free = s.free - cost
  end

  -- Gives back the oldest units that count, not those of the charge: a unit in their
  -- place would have left earlier, so what is left leaves no earlier than it should.
  function log.give(s, rule, at, _, units)
    if at <= s.now - rule.window then
      return 0
    end
    units = math.min(units, live(s))
    s.given, s.changed = s.given + units, units > 0
    s.free = math.max(0, rule.quota - live(s))
    return units
  end

  function log.empty(s)
    return s.count + s.added == s.given
  end

  -- The stored units as one string of slots of the wanted width, oldest first.
  local function unroll(s, width)
    if s.count == 0 then
      return ''
    elseif s.carried then
      return rep(pack_int(s.base % 256 ^ width, width), s.count)
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
    -- In chunks: miniredis's table.concat fails on a few thousand pieces.
    local chunks, chunk = {}, {}
    for i = 1, s.count do
      local slot = unpack_int(slots, (i - 1) * s.width + 1, s.width)
      chunk[#chunk + 1] = pack_int((s.base - (s.base - slot) % 256 ^ s.width) % 256 ^ width, width)
      if #chunk == 200 or i == s.count then
        chunks[#chunks + 1] = table.concat(chunk)
        chunk = {}
      end
    end
    return table.concat(chunks)
  end

  local function fields(s)
    return header(s.width - 4, s)
      .. pack_int(s.longest, 6)
      .. pack_int(s.keep, 5)
      .. pack_int(s.capacity, 4)
      .. pack_int(s.head, 4)
      .. pack_int(s.count, 4)
  end

  -- n slots from the i-th on, as one string; and the same put back. They may run over
  -- the ring's end.
  local function read_slots(s, i, n)
    local from = (s.head + i) % s.capacity
    local first = math.min(n, s.capacity - from)
    local text = call('GETRANGE', s.key, SLOTS + from * s.width, SLOTS + (from + first) * s.width - 1)
    if n > first then
      text = text .. call('GETRANGE', s.key, SLOTS, SLOTS + (n - first) * s.width - 1)
    end
    return text
  end

  local function write_slots(s, i, text)
    local from = (s.head + i) % s.capacity
    local first = math.min(#text, (s.capacity - from) * s.width)
    call('SETRANGE', s.key, SLOTS + from * s.width, sub(text, 1, first))
    if #text > first then
      call('SETRANGE', s.key, SLOTS, sub(text, first + 1))
    end
  end

  -- Writes the ring anew, head first.
  local function write_ring(s, slots)
    -- Grow by a quarter: a string grown by SETRANGE would double instead.
    s.capacity = math.max(s.capacity, s.count, math.min(s.keep, floor(s.count * 1.25) + 4))
    s.head = 0
    store(s, fields(s) .. slots .. rep('\0', s.capacity * s.width - #slots), s.newest + s.longest)
  end

  -- Takes units out behind those that have left, which move up to close the gap.
  local function write_given(s)
    if s.carried then
      s.count = s.count - s.given
      write_ring(s, unroll(s, s.width))
      return
    end
    if s.left > 0 then
      write_slots(s, s.given, read_slots(s, 0, s.left))
    end
    s.head = (s.head + s.given) % s.capacity
    s.count = s.count - s.given
    call('SETRANGE', s.key, 0, fields(s))
  end

  local function write_added(s, rule)
    -- Let go of what nobody needs: units older than the longest window, and units
    -- beyond the newest "keep".
    local gone = s.left
    if s.longest ~= rule.window then
      gone = expired(s, s.longest)
    end
    gone = math.max(gone, s.count + s.added - s.keep)
    local width = math.max(s.width, width_for(s.longest))
    local slots = rep(pack_int(s.now % 256 ^ width, width), s.added)
    if s.count - gone + s.added > s.capacity or width ~= s.width then
      slots = sub(unroll(s, width), gone * width + 1) .. slots
      s.count, s.width = s.count - gone + s.added, width
      write_ring(s, slots)
      return
    end
    s.head = (s.head + gone) % s.capacity
    write_slots(s, s.count - gone, slots)
    s.count = s.count - gone + s.added
    call('SETRANGE', s.key, 0, fields(s))
    expire(s, s.newest + s.longest)
  end

  function log.write(s, rule)
    if s.given > 0 then
      write_given(s)
    else
      write_added(s, rule)
    end
  end

  function log.reset(s, rule)
    if live(s) == 0 then
      return 0
    end
    -- The youngest unit need not be the newest charge's: that may have been given back.
    return stamp(s, s.count + s.added - 1) + rule.window - s.now
  end

  function log.held(s)
    return unpack_int(s.raw, HEADER + 20, 4)
  end

  return log
end
