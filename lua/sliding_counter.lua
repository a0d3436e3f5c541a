-- Sliding counter: k+1 counts of sub-windows of length window/k, aligned to the epoch: the current one, the k-1
-- before it, and the oldest, which the window overlaps in part. Sub-window number i holds the times t with
-- floor(t*k/window) = i; its count is at position i mod (k+1).
--
-- Part of the decision script; numbers.lua lists the parts in their order.
--
--   takes  numbers; state.lua
--   gives  make[SLIDING_COUNTER]
--
--   estimate: used = the newest k counts + the oldest weighted by its overlap
--             (rounded up; k = 1 is the well-known two-counter estimate)
--   strict:   used = all k+1 counts
--
-- The most units that can pass (law 1), considered at the last grant in any window of length W:
--
--   strict    All units of the window are in the k+1 counted sub-windows: N.
--   estimate  The window's units are in the newest k sub-windows, which are counted in full, and
--             in the oldest, which granted at most N. If any of the window's units are in the
--             oldest, some part of it still overlaps. So it counts for at least 1 and
--             leaves N-1 for the others: 2N-1, for every k. A window of length W(1-1/k)
--             touches only k sub-windows, which are all counted in full: N.
--
-- Strict returns capacity when a whole sub-window has left, up to W/k late. Under constant load it grants N in
-- every k+1 sub-windows, which is N*k/(k+1) per W.
--
--   tag 3: header, k (2 bytes), bytes per count (1), window (6), total (6), counts

make[SLIDING_COUNTER] = function()
  local COUNTS = HEADER + 15 -- the counts start after this byte
  local MAX_K, WIDEST = 256, 6

  local counter = {}

  -- The number of the sub-window of time t, and how far into it t is, in units of 1/window of a sub-window. t*k
  -- would exceed 2^53; (t mod window)*k does not.
  local function sub_window(t, rule)
    local in_window = t % rule.window
    local scaled = in_window * rule.k
    local index = (t - in_window) / rule.window * rule.k + floor(scaled / rule.window)
    return index, scaled % rule.window
  end

  -- The first whole µs that is at least f/window into sub-window number index.
  local function time_of(index, f, rule)
    local in_window = index % rule.k
    return (index - in_window) / rule.k * rule.window + math.ceil((in_window * rule.window + f) / rule.k)
  end

  local function bytes_for(n)
    local w = 1
    while n >= 256 ^ w do
      w = w + 1
    end
    return w
  end

  -- The count of sub-window number index, which must be one of the k+1 that s holds.
  local function count_of(s, index, rule)
    return unpack_int(s.counts, index % (rule.k + 1) * s.width + 1, s.width)
  end

  -- Replaces the bytes of the counts from the position of sub-window number index on.
  local function replace(s, index, rule, text)
    local from = index % (rule.k + 1) * s.width
    s.counts = sub(s.counts, 1, from) .. text .. sub(s.counts, from + #text + 1)
  end

  -- Widens the counts to the given number of bytes.
  local function widen(s, rule, width)
    if width <= s.width then
      return
    end
    local wide, more = {}, rep('\0', width - s.width)
    for i = 1, rule.k + 1 do
      wide[i] = more .. sub(s.counts, (i - 1) * s.width + 1, i * s.width)
    end
    s.counts, s.width = concat(wide), width
  end

  -- The number of units that count now.
  local function counted(s, rule)
    local used = s.total
    if used > 0 and not rule.strict then
      local oldest = count_of(s, s.index - rule.k, rule)
      used = math.max(0, used - oldest) + muldiv_up(oldest, rule.window - s.into, rule.window)
    end
    return used
  end

  local function count_free(s, rule)
    s.free = math.max(0, rule.quota - counted(s, rule))
  end

  counter.recount = count_free

  -- The first whole µs of the sub-window that contains t.
  function counter.start(t, rule)
    return time_of((sub_window(t, rule)), 0, rule)
  end

  -- Computes the counts from inherited units, which were counted in another way.
  local function count_inherited(s, rule)
    local from = s.inherited
    s.total = 0
    for g = 1, from.groups do
      local index = sub_window(from.at[g], rule)
      if index >= s.newest_index - rule.k then
        replace(s, index, rule, pack_int(count_of(s, index, rule) + from.each[g], s.width))
        s.total = s.total + from.each[g]
      end
    end
  end

  local p = { counts = '', width = 0, total = 0, index = 0, into = 0, newest_index = 0, now = 0, free = 0, changed = false } -- of the current key

  -- Makes the counts those of the k+1 sub-windows up to the current one.
  local function advance(s, rule)
    if s.newest_index == s.index then
      return
    end
    if s.total == 0 then
      s.counts = rep('\0', (rule.k + 1) * s.width)
    else
      -- Clear the sub-windows that have begun since the newest charge, in at most two runs.
      local begun = s.index - s.newest_index
      local first = (s.newest_index + 1) % (rule.k + 1)
      local run = math.min(begun, rule.k + 1 - first)
      replace(s, first, rule, rep('\0', run * s.width))
      replace(s, 0, rule, rep('\0', (begun - run) * s.width))
    end
    s.newest_index = s.index
  end

  -- Returns a state in which the counts of the sub-windows that have begun since its newest charge are cleared,
  -- with all counts in their places; and their total.
  local function clear_begun(raw, newest, rule)
    local k, index, newest_index = rule.k, rule.index, sub_window(newest, rule)
    p.index, p.newest_index, p.width = index, newest_index, rule.width
    p.counts, p.total = sub(raw, COUNTS + 1), unpack_int(raw, HEADER + 10, 6)
    if index - newest_index > k then
      p.total = 0
    else
      for i = newest_index - k, index - k - 1 do
        p.total = p.total - count_of(p, i, rule)
      end
    end
    advance(p, rule)
    return sub(raw, 1, COUNTS) .. p.counts, p.total
  end

  -- Answers a request of which plain has found that it does not fit.
  local function plain_denial(counts, total, rule, cost, free)
    p.now, p.index, p.newest_index, p.width = clock, rule.index, rule.index, rule.width
    p.counts, p.total = sub(counts, COUNTS + 1), total
    local reset, wait = counter.reset(p, rule), counter.wait(p, rule, cost)
    return denial(free, reset, wait, (cost == 1 or free > 0) and wait or counter.wait(p, rule, 1))
  end

  -- Most requests are for units that are free, of a key that is new, or that was charged before under the same
  -- limit and has no offset. These are decided here, on the fast path.
  local function plain(key, cost, rule, may_deny)
    local raw, now, width = pcall('GET', key) or '', clock, rule.width
    if now < rule.start or now >= rule.finish then
      local index = sub_window(now, rule)
      rule.index, rule.start, rule.finish = index, time_of(index, 0, rule), time_of(index + 1, 0, rule)
      rule.ends = time_of(index + rule.k + 1, 0, rule)
      rule.place = COUNTS + index % (rule.k + 1) * width -- the current count is after this byte
      rule.oldest = COUNTS + (index + 1) % (rule.k + 1) * width -- and the oldest count after this one
    end
    local counts, total = raw, 0
    if #raw == rule.bytes then
      local tag, a, b, c, d, e, f, g, h, i, j, k, l, m, n = byte(raw, 1, HEADER)
      local newest = (((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g
      if tag ~= TAG_COUNTER or h + i + j + k + l + m + n > 0 or newest > now or find(raw, rule.dims, HEADER + 1, true) ~= HEADER + 1 then
        seen_key, seen = key, raw
        return
      elseif newest >= rule.start then
        total = unpack_int(raw, HEADER + 10, 6)
      else
        counts, total = clear_begun(raw, newest, rule)
      end
    elseif raw == '' then
      if now == rule.same_at and cost == rule.same_cost then
        put('SET', key, rule.same_value, expiry(rule.ends))
        return rule.same_answer
      end
      counts = rule.unused
    else -- another limit's counter, or no counter
      seen_key, seen = key, raw
      return
    end

    local used, oldest = total + cost, 0
    if total > 0 and not rule.strict then
      oldest = unpack_int(counts, rule.oldest + 1, width)
      local _, into = sub_window(now, rule)
      used = used - oldest + muldiv_up(oldest, rule.window - into, rule.window)
    end
    if used > rule.quota or total < oldest then -- the cost does not fit, or the total is damaged
      seen_key, seen = key, raw
      return may_deny and total >= oldest and total <= 2 * MAX_UNITS
        and plain_denial(counts, total, rule, cost, rule.quota - used + cost)
    end
    local place, ends = rule.place, rule.ends
    local count = unpack_int(counts, place + 1, width)
    local value = header_of_now(TAG_COUNTER) .. rule.dims .. pack_int(total + cost, 6)
      .. sub(counts, COUNTS + 1, place) .. pack_int(count + cost, width) .. sub(counts, place + width + 1)
    if count > 0 then -- it was charged in this sub-window, and lasts until the same time
      put('SETRANGE', key, '0', value)
    else
      put('SET', key, value, expiry(ends))
    end
    local a, b, c, d, e, f, g = bytes_of(rule.quota - used)
    local encoded = char(ANSWER_ALLOWED, a, b, c, d, e, f, g, bytes_of(ends - now))
    if raw == '' then
      rule.same_at, rule.same_cost, rule.same_value, rule.same_answer = now, cost, value, encoded
    end
    return encoded
  end

  local function plain_give(key, rule, stamp, _, units, alike)
    local raw, now = pcall('GET', key) or '', clock
    seen_key, seen = key, raw
    if #raw ~= rule.bytes then
      return
    end
    local tag, a, b, c, d, e, f, g, h, i, j, k, l, m, n = byte(raw, 1, HEADER)
    if tag ~= TAG_COUNTER or h + i + j + k + l + m + n > 0 or find(raw, rule.dims, HEADER + 1, true) ~= HEADER + 1 then
      return
    end
    local newest = (((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g
    p.index, p.into = sub_window(now, rule)
    if newest > now or (stamp and stamp > newest) or sub_window(newest, rule) ~= p.index then
      return
    end
    p.counts, p.width, p.newest_index, p.newest, p.now = sub(raw, COUNTS + 1), rule.width, p.index, newest, now
    p.total = unpack_int(raw, HEADER + 10, 6)
    local given
    if alike then
      given = counter.release(p, rule, alike.stamps, nil, alike.units)
    else
      given = counter.give(p, rule, stamp, units, units)
    end
    if p.total == 0 then
      return
    end
    seen_key = nil
    count_free(p, rule)
    if given > 0 then
      call('SETRANGE', key, '24', pack_int(p.total, 6) .. p.counts)
    end
    return given, p.free, counter.reset(p, rule)
  end

  -- Parameters: k (2 bytes), strict (1).
  function counter.rule(quota, window, params)
    local k, width = unpack_int(packed, params, 2), bytes_for(quota)
    return {
      algorithm = counter, quota = quota, window = window, k = k, width = width, plain = plain, bytes = COUNTS + (k + 1) * width,
      plain_give = plain_give, most_plain = quota, unused = rep('\0', COUNTS + (k + 1) * width),
      strict = byte(packed, params + 2) == 1, dims = pack_int(k, 2) .. char(width) .. pack_int(window, 6),
      index = 0, start = 0, finish = 0, ends = 0, place = 0, oldest = 0, -- of the sub-window that plain used last
      same_at = 0, same_cost = 0, same_value = '', same_answer = '', -- of a new key
    }
  end

  -- The sum of the counts is not compared with the total, because that would take longer than everything else.
  -- Under estimate, the part of the oldest sub-window that does not count may hold as many units as count: hence
  -- the factor 2.
  function counter.read(s)
    if #s.raw == PREFIX then
      s.raw = call('GETRANGE', s.key, '0', decimal(COUNTS + (MAX_K + 1) * WIDEST))
    end
    local raw = s.raw
    if #raw < COUNTS then
      return false
    end
    local k, width = unpack_int(raw, HEADER + 1, 2), byte(raw, HEADER + 3)
    s.total = unpack_int(raw, HEADER + 10, 6)
    -- Sub-windows take a µs or more, so their numbers are below LATEST. Otherwise they could reach 2^53, where a loop
    -- that subtracts 1 from a number never ends.
    return width > 0 and width <= WIDEST and k > 0 and k <= MAX_K and unpack_int(raw, HEADER + 4, 6) >= k
      and #raw == COUNTS + (k + 1) * width and s.total <= 2 * MAX_UNITS
  end

  function counter.look(s, rule)
    s.index, s.into = sub_window(s.now, rule)
    s.newest_index = s.index
    local width, raw = bytes_for(rule.quota), s.raw
    local same = s.tag == TAG_COUNTER
      and unpack_int(raw, HEADER + 1, 2) == rule.k
      and unpack_int(raw, HEADER + 4, 6) == rule.window
    if s.tag == 0 then
      s.total = 0
    else
      s.newest_index = sub_window(s.newest, rule)
    end
    if same then
      s.width, s.counts = byte(raw, HEADER + 3), sub(raw, COUNTS + 1)
      widen(s, rule, width) -- the limit may have grown beyond what a count can hold
    else
      -- The key is new, or has another algorithm's state, or was counted in other sub-windows.
      if s.tag ~= 0 then
        s.inherited = inherit(s, rule, s.tag == TAG_COUNTER and s.total or MAX_LIMITS * rule.quota)
        s.total = s.inherited.units
      end
      s.width = math.max(width, bytes_for(s.total))
      s.counts = rep('\0', (rule.k + 1) * s.width)
      if s.total > 0 then
        count_inherited(s, rule)
      end
    end

    if s.total > 0 then
      -- Subtract the sub-windows that the window no longer touches. Their positions are those of the sub-windows
      -- that have begun since.
      if s.index - s.newest_index > rule.k then
        s.total = 0
      else
        for i = s.newest_index - rule.k, s.index - rule.k - 1 do
          s.total = s.total - count_of(s, i, rule)
        end
        s.total = math.max(0, s.total)
        if same then
          s.lasts = s.now + counter.reset(s, rule)
        end
      end
    end
    count_free(s, rule)
  end

  -- The first sub-window from the given number on that has units. There may be many without any, as after a burst.
  local function first_used(s, index, rule)
    local place = find(s.counts, '[^%z]', index % (rule.k + 1) * s.width + 1) or find(s.counts, '[^%z]')
    if not place then -- the total is damaged
      return s.newest_index + 1
    end
    return index + (floor((place - 1) / s.width) - index) % (rule.k + 1)
  end

  function counter.wait(s, rule, cost)
    local room = rule.quota - cost
    local later = s.total -- the units in sub-window index-k and later
    local index = s.index
    while later > room do
      local used = first_used(s, index - rule.k, rule)
      if used > s.newest_index then
        index = s.newest_index + rule.k + 1
        break
      end
      index = used + rule.k
      local oldest = count_of(s, used, rule)
      if not rule.strict and later - oldest <= room then
        local excess = later - room -- units of the oldest that must be weighted away
        return math.max(0, time_of(index, muldiv_up(rule.window, excess, oldest), rule) - s.now)
      end
      later = later - oldest
      index = index + 1
    end
    return math.max(0, time_of(index, 0, rule) - s.now)
  end

  function counter.take(s, rule, cost)
    advance(s, rule)
    replace(s, s.index, rule, pack_int(count_of(s, s.index, rule) + cost, s.width))
    s.total = s.total + cost
    s.free = s.free - cost
  end

  -- Gives back nothing of a charge that is a window old, though the oldest sub-window may still count. A rule with
  -- another algorithm may have forgotten that charge, and the units counted there are then those of other charges.
  function counter.give(s, rule, stamp, _, units)
    local index = sub_window(stamp, rule)
    if s.total == 0 or stamp <= s.now - rule.window then
      return 0
    end
    local count = count_of(s, index, rule)
    units = math.min(units, count)
    replace(s, index, rule, pack_int(count - units, s.width))
    s.total, s.changed = math.max(0, s.total - units), s.changed or units > 0 -- a damaged total may be smaller
    return units
  end

  -- Charges made at the same time are given back together.
  function counter.release(s, rule, stamps, _, units)
    local given, i = 0, 1
    while stamps[i] do
      local stamp, sum = stamps[i], 0
      while stamps[i] == stamp do
        sum, i = sum + units[i], i + 1
      end
      if stamp <= s.newest then -- otherwise the key no longer knows of the charge
        given = given + counter.give(s, rule, stamp, sum, sum)
      end
    end
    return given
  end

  function counter.charge(s, rule, stamps, units)
    local room = math.min(MAX_LIMITS * rule.quota - counted(s, rule), 2 * MAX_UNITS - s.total) -- the second: see read
    local charged = 0
    for i = 1, #stamps do
      local index = sub_window(stamps[i], rule)
      local some = math.min(units[i], room - charged)
      if index >= s.index - rule.k and some > 0 then
        advance(s, rule)
        local count = count_of(s, index, rule) + some
        widen(s, rule, bytes_for(count))
        replace(s, index, rule, pack_int(count, s.width))
        charged, s.changed = charged + some, true
      end
    end
    s.total = s.total + charged
    return charged
  end

  function counter.empty(s)
    return not find(s.counts, '[^%z]')
  end

  function counter.write(s, rule)
    local total = s.total
    if s.newest_index ~= s.index then
      -- Units were given back without a charge now, so the counts are still those at the newest charge.
      total = 0
      for i = s.newest_index - rule.k, s.newest_index do
        total = total + count_of(s, i, rule)
      end
    end
    local value = header(TAG_COUNTER, s)
      .. pack_int(rule.k, 2)
      .. char(s.width)
      .. pack_int(rule.window, 6)
      .. pack_int(total, 6)
      .. s.counts
    store(s, value, s.now + counter.reset(s, rule))
  end

  -- The newest sub-window with units is that of the newest charge, unless that charge's units were given back.
  function counter.reset(s, rule)
    if s.total == 0 then
      return 0
    end
    local last = s.newest_index
    while last > s.index - rule.k and count_of(s, last, rule) == 0 do
      last = last - 1
    end
    return time_of(last + rule.k + 1, 0, rule) - s.now
  end

  -- Reports the units of each sub-window as charged at its end.
  function counter.past(s, _, _, add)
    local raw = s.raw
    local old, width = { k = unpack_int(raw, HEADER + 1, 2), window = unpack_int(raw, HEADER + 4, 6) }, byte(raw, HEADER + 3)
    local newest = sub_window(s.newest, old)
    for i = newest, newest - old.k, -1 do
      local units = unpack_int(raw, COUNTS + i % (old.k + 1) * width + 1, width)
      add(math.max(0, math.min(s.newest, time_of(i + 1, 0, old) - 1)), units)
    end
  end

  return counter
end
