-- The sliding log's default encoding: a ring of time stamps in one string.
--
-- Part of the decision script; numbers.lua lists the parts in their order.
--
--   takes  numbers; state.lua; sliding_log
--   gives  make[SLIDING_LOG]
--
-- A stamp takes 5 bytes: µs modulo 2^40 (12.7 days). For windows of a quarter of that or more it takes 6 bytes. The
-- stamp's full value is found by counting back from the newest charge, which is stored in full. This is sound,
-- because before a new unit is written the head moves past every unit older than the window. So no stored unit is
-- ever older, as seen from the newest charge, than the longest window used.
--
--   tag 1 (5-byte stamps), tag 2 (6-byte stamps):
--   header, longest (6 bytes), keep (5), capacity (4), head (4), count (4), slots
--
-- longest   longest window used, µs       capacity  slots in the ring
-- keep      largest quota used            head      slot of the oldest unit
--                                         count     units stored

local MAX_LOG_UNITS = 100000 -- most units of the largest log

make[SLIDING_LOG] = function()
  local SLOTS = HEADER + 23 -- the slots start after this byte

  local ring = { most = MAX_LOG_UNITS }

  local function width_for(window)
    if window < 2 ^ 38 then
      return 5
    end
    return 6
  end

  -- Reports whether the value is as long as it should be: its last byte exists, and there is none after it.
  local function is_whole(key, size)
    return #call('GETRANGE', key, decimal(size - 1), decimal(size)) == 1
  end

  function ring.read(s)
    local raw = s.raw
    if #raw < SLOTS then
      return false
    end
    s.width = s.tag + 4
    s.longest = unpack_int(raw, HEADER + 1, 6)
    s.keep = unpack_int(raw, HEADER + 7, 5)
    s.capacity = unpack_int(raw, HEADER + 12, 4)
    s.head = unpack_int(raw, HEADER + 16, 4)
    s.count = unpack_int(raw, HEADER + 20, 4)
    if s.longest > LONGEST_WINDOW or s.keep > MAX_LOG_UNITS or s.capacity > s.keep or s.head >= s.capacity or s.count > s.capacity then
      return false
    end
    local size = SLOTS + s.capacity * s.width
    if #raw < PREFIX or size <= PREFIX then
      return #raw == size
    end
    return is_whole(s.key, size)
  end

  function ring.stamp(s, i)
    local from = SLOTS + (s.head + i) % s.capacity * s.width
    local slot
    if from + s.width <= #s.raw then
      slot = unpack_int(s.raw, from + 1, s.width)
    else
      -- On the fast path, a truncated ring is noticed only when it is written.
      slot = unpack_int(call('GETRANGE', s.key, decimal(from), decimal(from + s.width - 1)), 1, s.width) or 0
    end
    return s.base - (s.base - slot) % 256 ^ s.width
  end

  -- A galloping search from the oldest or the newest unit, whichever is probably closer. It takes constant time if few
  -- units are passed, and logarithmic time at worst.
  function ring.expired(s, threshold)
    local low, high, step = 0, s.count, 1 -- unit low has left, and unit high has not, or there is none
    if s.base - threshold < s.longest / 2 then
      while step <= high and ring.stamp(s, high - step) > threshold do
        high = high - step
        step = step * 2
      end
      low = math.max(-1, high - step)
    elseif ring.stamp(s, 0) > threshold then
      return 0
    else
      while low + step < high and ring.stamp(s, low + step) <= threshold do
        low = low + step
        step = step * 2
      end
      high = math.min(high, low + step)
    end
    while high - low > 1 do
      local middle = floor((low + high) / 2)
      if ring.stamp(s, middle) <= threshold then
        low = middle
      else
        high = middle
      end
    end
    return high
  end

  -- Converts slots of 5 bytes, oldest first, to slots of 6 bytes. The sixth byte of each is that of the newest
  -- charge, or that of the 12.7 days before. It is put in front of all slots at once, since unpacking and packing
  -- each slot takes ten times as long.
  local function widened(slots, s)
    local newest = s.base % 256 ^ 5
    local low, high = 0, s.count -- find how many are from the 12.7 days before
    while low < high do
      local middle = floor((low + high) / 2)
      if unpack_int(slots, middle * 5 + 1, 5) > newest then
        low = middle + 1
      else
        high = middle
      end
    end
    local sixth = (s.base - newest) / 256 ^ 5
    local function prefixed(text, n)
      local prefix = char(n % 256)
      return (gsub(text, '.....', (prefix == '%' and '%%' or prefix) .. '%0'))
    end
    return prefixed(sub(slots, 1, low * 5), sixth - 1) .. prefixed(sub(slots, low * 5 + 1), sixth)
  end

  -- The stored units as one string of slots of the given width, oldest first.
  local function unroll(s, width)
    if s.count == 0 then
      return ''
    elseif s.inherited then
      local slots, inherited = {}, s.inherited
      for g = inherited.groups, 1, -1 do
        slots[#slots + 1] = rep(pack_int(inherited.at[g] % 256 ^ width, width), inherited.each[g])
      end
      return concat(slots)
    end
    if #s.raw == PREFIX then
      s.raw = call('GET', s.key)
    end
    local raw = s.raw
    local first = math.min(s.count, s.capacity - s.head)
    local slots = sub(raw, SLOTS + s.head * s.width + 1, SLOTS + (s.head + first) * s.width)
      .. sub(raw, SLOTS + 1, SLOTS + (s.count - first) * s.width)
    if width == s.width then
      return slots
    end
    return widened(slots, s)
  end

  local function fields(s)
    return header(s.width - 4, s)
      .. pack_int(s.longest, 6)
      .. pack_int(s.keep, 5)
      .. pack_int(s.capacity, 4)
      .. pack_int(s.head, 4)
      .. pack_int(s.count, 4)
  end

  -- Reads n slots from the i-th on as one string. The slots may continue at the ring's beginning. write_slots
  -- writes them.
  local function read_slots(s, i, n)
    local from = (s.head + i) % s.capacity
    local first = math.min(n, s.capacity - from)
    local text = call('GETRANGE', s.key, decimal(SLOTS + from * s.width), decimal(SLOTS + (from + first) * s.width - 1))
    if n > first then
      text = text .. call('GETRANGE', s.key, decimal(SLOTS), decimal(SLOTS + (n - first) * s.width - 1))
    end
    return text
  end

  local function write_slots(s, i, text)
    local from = (s.head + i) % s.capacity
    local first = math.min(#text, (s.capacity - from) * s.width)
    call('SETRANGE', s.key, decimal(SLOTS + from * s.width), sub(text, 1, first))
    if #text > first then
      call('SETRANGE', s.key, decimal(SLOTS), sub(text, first + 1))
    end
  end

  -- Returns the time until which a ring matters, plus up to a sixteenth of its window, so that most charges need
  -- not set the expiry.
  local function matters(newest, longest)
    local t, slack = newest + longest, math.max(1, floor(longest / 16))
    return t + slack - t % slack
  end

  -- Returns the capacity of a ring that is rewritten. It grows by a quarter. A string that SETRANGE makes longer
  -- would double instead.
  local function grown(capacity, count, keep)
    return math.max(capacity, count, math.min(keep, floor(count * 1.25) + 4))
  end

  -- Rewrites the ring with the head in slot 0.
  local function write_ring(s, slots)
    s.capacity = grown(s.capacity or 0, s.count, s.keep)
    s.head = 0
    store(s, fields(s) .. slots .. rep('\0', s.capacity * s.width - #slots), matters(s.newest, s.longest))
  end

  -- Returns slots, of which the first is that of unit number "from", without those in the ranges.
  local function without(ranges, slots, from, width)
    local pieces, start = {}, from
    for i = 1, #ranges do
      local range = ranges[i]
      pieces[i] = sub(slots, (start - from) * width + 1, math.max(0, range.from - from) * width)
      start = range.from + range.units
    end
    pieces[#pieces + 1] = sub(slots, (start - from) * width + 1)
    return concat(pieces)
  end

  -- Removes ranges of units: the older or the newer units move up to close the gaps, whichever are fewer. Under a longer
  -- window than before, the ring is rewritten: its stamps may become wider, and the key lasts longer.
  local function write_given(s, ranges)
    if s.inherited or s.longest ~= unpack_int(s.raw, HEADER + 1, 6) then
      local width = math.max(s.width or 5, width_for(s.longest))
      local slots = without(ranges, unroll(s, width), 0, width)
      s.count, s.width = s.count - s.given, width
      write_ring(s, slots)
      return
    end
    local first, older = ranges[1], ranges[#ranges].from
    local after = first.from + first.units
    local newer = s.count - after
    if newer <= older then
      if newer > 0 then
        write_slots(s, first.from, without(ranges, read_slots(s, after, newer), after, s.width))
      end
    else
      if older > 0 then
        write_slots(s, s.given, without(ranges, read_slots(s, 0, older), 0, s.width))
      end
      s.head = (s.head + s.given) % s.capacity
    end
    s.count = s.count - s.given
    call('SETRANGE', s.key, '0', fields(s))
  end

  local function write_added(s, rule)
    local gone = ring.log.unneeded(s, rule)
    local width = math.max(s.width or 5, width_for(s.longest))
    local slots = rep(pack_int(s.now % 256 ^ width, width), s.added)
    if s.capacity == nil or s.count - gone + s.added > s.capacity or width ~= s.width then
      slots = sub(unroll(s, width), gone * width + 1) .. slots
      s.count, s.width = s.count - gone + s.added, width
      write_ring(s, slots)
      return
    end
    s.head = (s.head + gone) % s.capacity
    write_slots(s, s.count - gone, slots)
    s.count = s.count - gone + s.added
    call('SETRANGE', s.key, '0', fields(s))
    expire(s.key, matters(s.newest, s.longest) - s.offset)
  end

  -- Inserts units of the past at their times, from the youngest on, until there are s.keep units, which bounds the
  -- work. Whole ranges of slots are copied.
  local function write_past(s)
    local stamps, units = s.past.stamps, s.past.units
    local width = math.max(s.width or 5, width_for(s.longest))
    local stored = unroll(s, width)
    local pieces, room, to = {}, s.keep, s.count
    -- The stored units from unit number "from" up to "to", as far as there is room.
    local function piece(from)
      local some = math.min(room, to - from)
      room = room - some
      return sub(stored, (to - some) * width + 1, to * width)
    end
    for i = 1, #stamps do
      local place = 2 * (#stamps - i + 1)
      local from = math.min(to, ring.log.up_to(s, stamps[i]))
      pieces[place + 1] = piece(from)
      local some = math.min(room, units[i])
      pieces[place] = rep(pack_int(stamps[i] % 256 ^ width, width), some)
      room, to = room - some, from
    end
    pieces[1] = piece(math.min(to, ring.log.up_to(s, s.now - s.longest)))
    s.count, s.width = s.keep - room, width
    write_ring(s, concat(pieces, '', 1, 2 * #stamps + 1))
  end

  function ring.write(s, rule)
    if s.past then
      write_past(s)
    elseif s.given > 0 then
      write_given(s, s.released or { { from = s.left, units = s.given } })
    else
      write_added(s, rule)
    end
  end

  local function four_bytes(n)
    local d = n % 256
    n = (n - d) / 256
    local c = n % 256
    n = (n - c) / 256
    local b = n % 256
    return (n - b) / 256, b, c, d
  end

  local p = new_state() -- of the current key

  -- Returns a new ring's front, and the ring: the kept slots, oldest first, followed by the units charged now.
  local function new_ring(cost, rule, tag, slots, kept, capacity)
    local count, width = kept + cost, tag + 4
    capacity = grown(capacity, count, rule.quota)
    local a, b, c, d = four_bytes(capacity)
    local front = header_of_now(tag) .. rule.dims .. char(a, b, c, d, 0, 0, 0, 0, four_bytes(count))
    return front, front .. slots .. rep(sub(front, 9 - width, 8), cost) .. rep('\0', (capacity - count) * width)
  end

  -- Writes a ring that is new, and returns the answer.
  local function write_plainly(key, rule, front, value)
    put('SET', key, value, expiry(matters(clock, rule.window)))
    seen_key = nil
    return front
  end

  -- Answers a request of no more than the limit that does not fit, so some units count: "counted" of the current ring do,
  -- and "left" have left the window.
  local function plain_denial(left, counted, rule, cost)
    local since, free = clock - rule.window, rule.quota - counted
    local wait = math.max(0, ring.stamp(p, left + cost - free - 1) - since)
    local next = cost == 1 and wait or math.max(0, ring.stamp(p, left) - since)
    return denial(free, math.max(0, ring.stamp(p, p.count - 1) - since), wait, next)
  end

  -- Nearly all requests are for units that are free, of a key that is new, or whose ring is used under one limit
  -- only and has no offset. These are decided here, on the fast path. A short ring has been read whole. It is
  -- written up to the new slot, or completely if it has no room. For a longer ring that has room, the slot and the
  -- fields in front are written in place.
  function ring.plain(key, cost, rule, may_deny)
    local raw, now, window = pcall('GETRANGE', key, '0', PREFIX_END), clock, rule.window
    seen_key, seen = key, raw
    if raw == '' and cost <= rule.quota then
      if now ~= rule.same_at or cost ~= rule.same_cost then
        rule.same_at, rule.same_cost = now, cost
        rule.same_answer, rule.same_value = new_ring(cost, rule, width_for(window) - 4, '', 0, 0)
      end
      return write_plainly(key, rule, rule.same_answer, rule.same_value)
    elseif #raw < SLOTS then -- not a ring
      return
    end
    local tag, a, b, c, d, e, f, g, h, i, j, k, l, m, n = byte(raw, 1, HEADER)
    if tag > TAG_LONG_LOG or h + i + j + k + l + m + n > 0 or find(raw, rule.dims, HEADER + 1, true) ~= HEADER + 1 then
      return
    end
    local newest = (((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g
    a, b, c, d, e, f, g, h, i, j, k, l = byte(raw, HEADER + 12, SLOTS)
    local capacity = ((a * 256 + b) * 256 + c) * 256 + d
    local head, count, width = ((e * 256 + f) * 256 + g) * 256 + h, ((i * 256 + j) * 256 + k) * 256 + l, tag + 4
    local size, is_short = SLOTS + capacity * width, #raw < PREFIX
    if newest > now or capacity > rule.quota or head >= capacity or count > capacity or (is_short and #raw ~= size) then
      return
    end

    local left = count
    if count > 0 and newest > now - window then
      p.key, p.raw, p.base, p.longest, p.head, p.count, p.capacity, p.width = key, raw, newest, window, head, count, capacity, width
      left = ring.expired(p, now - window)
    end
    local slot = (head + count) % capacity
    head, count = (head + left) % capacity, count - left
    if count + cost > rule.quota then
      return may_deny and cost <= rule.quota and (is_short or is_whole(key, size)) and plain_denial(left, count, rule, cost)
    elseif count + cost > capacity then
      if not is_short then
        return
      end
      local first = math.min(count, capacity - head)
      local slots = sub(raw, SLOTS + head * width + 1, SLOTS + (head + first) * width) .. sub(raw, SLOTS + 1, SLOTS + (count - first) * width)
      return write_plainly(key, rule, new_ring(cost, rule, tag, slots, count, capacity))
    elseif slot + cost > capacity or (not is_short and put ~= call and not is_whole(key, size)) then
      return -- the slots wrap around, or the ring is damaged, which the general path reports
    end

    e, f, g, h = four_bytes(head)
    local front = header_of_now(tag) .. rule.dims .. char(a, b, c, d, e, f, g, h, four_bytes(count + cost))
    local stamps = sub(front, 9 - width, 8)
    if cost > 1 then
      stamps = rep(stamps, cost)
    end
    if is_short then
      put('SETRANGE', key, '0', front .. sub(raw, SLOTS + 1, SLOTS + slot * width) .. stamps)
    else
      local written = put('SETRANGE', key, decimal(SLOTS + slot * width), stamps)
      if written and written ~= size then
        return -- damaged, as above
      end
      put('SETRANGE', key, '0', front)
    end
    seen_key = nil
    local t, lasted, slack = now + window, newest + window, rule.slack -- see matters
    t = t + slack - t % slack
    if t ~= lasted + slack - lasted % slack then
      expire(key, t)
    end
    return front
  end

  -- Gives back units of a ring whose key has no offset, see plain_give in state.lua.
  function ring.plain_give(key, rule, stamp, _, units, alike)
    if not open(p, key) or p.offset > 0 or p.newest > clock or p.tag < TAG_LOG or p.tag > TAG_LONG_LOG or not ring.read(p) then
      seen_key, seen = key, p.raw
      return
    end
    ring.log.look(p, rule)
    local given = ring.log.release(p, rule, alike and alike.stamps or { stamp }, nil, alike and alike.units or { units })
    if given == p.count then -- the key would be empty
      seen_key, seen = key, p.raw
      return
    end
    if given > 0 then
      ring.write(p, rule)
      p.raw, p.given = sub(p.raw, 1, SLOTS), 0 -- slots may have been moved
    end
    return given, math.max(0, rule.quota - p.count + p.left), ring.log.reset(p, rule)
  end

  return sliding_log(ring)
end
