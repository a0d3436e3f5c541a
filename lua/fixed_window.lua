-- Fixed window: one count per window. Windows are aligned to the Unix epoch or to the calendar. A count belongs to
-- the window that its newest charge lies in.
--
-- Part of the decision script; numbers.lua lists the parts in their order.
--
--   takes  numbers; state.lua
--   gives  make[FIXED_WINDOW]
--
-- For calendar windows, Go passes the beginnings of the previous window, the current one, the next, and the one
-- after that. The clocks of Redis and of the asking process may differ by a whole window. A key's own time may be
-- even further ahead: later windows are assumed to be as long as the last known one.
--
--   tag 5: header, when the window of the newest charge ends (7 bytes), count (6)

make[FIXED_WINDOW] = function()
  local LENGTH = HEADER + 13

  local fixed = {}

  -- The window that t lies in: its beginning and end.
  local function window_of(t, rule)
    local bounds = rule.bounds
    if bounds == nil then
      local start = t - t % rule.window
      return start, start + rule.window
    end
    if t < bounds[1] then
      return -1, bounds[1]
    end
    for i = 1, 3 do
      if t < bounds[i + 1] then
        return bounds[i], bounds[i + 1]
      end
    end
    local length = bounds[4] - bounds[3]
    local start = t - (t - bounds[4]) % length
    return start, start + length
  end

  -- Most requests are for units that are free, of a key that is new, or that was charged before and has no offset.
  -- These are decided here, on the fast path.
  local function plain(key, cost, rule, may_deny)
    local raw, now, count, lasts = pcall('GET', key) or '', clock, 0, false
    if now < rule.start or now >= rule.finish then
      rule.start, rule.finish = window_of(now, rule)
      rule.ends = pack_time(rule.finish)
    end
    if #raw == LENGTH then
      local tag, a, b, c, d, e, f, g, h, i, j, k, l, m, n = byte(raw, 1, HEADER)
      local newest = (((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g
      if tag ~= TAG_FIXED_WINDOW or h + i + j + k + l + m + n > 0 or newest > now then
        seen_key, seen = key, raw
        return
      end
      if newest >= rule.start then
        count, lasts = unpack_int(raw, HEADER + 8, 6), find(raw, rule.ends, HEADER + 1, true) == HEADER + 1
      end
    elseif raw ~= '' then
      seen_key, seen = key, raw
      return
    end
    count = count + cost
    if count > rule.quota then
      seen_key, seen = key, raw
      local reset = rule.finish - now
      return may_deny and count - cost <= MAX_UNITS and denial(rule.quota - count + cost, reset, reset, reset)
    end
    if now ~= rule.same_at or count ~= rule.same_cost then
      rule.same_at, rule.same_cost = now, count
      rule.same_value = header_of_now(TAG_FIXED_WINDOW) .. rule.ends .. pack_int(count, 6)
    end
    local value = rule.same_value
    if lasts then
      put('SETRANGE', key, '0', value)
    else -- the key is new, or was charged under another window
      put('SET', key, value, expiry(rule.finish))
    end
    return value
  end

  local p = { key = '', now = 0, offset = 0, charged = false, lasts = 0 } -- what store needs to know of the current key

  local function plain_give(key, rule, stamp, _, units, alike)
    local raw, now = pcall('GET', key) or '', clock
    seen_key, seen = key, raw
    if #raw ~= LENGTH then
      return
    end
    local tag, a, b, c, d, e, f, g, h, i, j, k, l, m, n = byte(raw, 1, HEADER)
    local newest = (((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g
    local start, finish = window_of(now, rule)
    local count = unpack_int(raw, HEADER + 8, 6)
    if tag ~= TAG_FIXED_WINDOW or h + i + j + k + l + m + n > 0 or newest > now or newest < start or (stamp and (stamp < start or stamp > newest)) or count > rule.quota then
      return
    end
    if alike then
      units = 0
      for i = 1, #alike.stamps do
        if alike.stamps[i] >= start and alike.stamps[i] <= newest then
          units = units + alike.units[i]
        end
      end
    end
    local given = math.min(units, count)
    count = count - given
    if count == 0 then
      return
    end
    seen_key = nil
    if given > 0 then
      p.key, p.now, p.lasts = key, now, unpack_time(raw, HEADER + 1)
      store(p, sub(raw, 1, HEADER + 7) .. pack_int(count, 6), finish)
    end
    return given, rule.quota - count, finish - now
  end

  -- Parameters of a calendar window, whose length is given as 0: the beginnings of the window before, of the current
  -- window, of the next one, and of the one after that (7 bytes each).
  function fixed.rule(quota, window, params)
    local rule = {
      algorithm = fixed, quota = quota, window = window, plain = plain, plain_give = plain_give, most_plain = quota,
      start = 0, finish = 0, ends = '', -- the window that was last used by plain
      same_at = 0, same_cost = 0, same_value = '', -- of a key with this cost in the window
    }
    if window == 0 then
      rule.bounds = {}
      for i = 1, 4 do
        rule.bounds[i] = unpack_int(packed, params + (i - 1) * 7, 7)
      end
    end
    return rule
  end

  function fixed.read(s)
    if #s.raw ~= LENGTH then
      return false
    end
    s.count = unpack_int(s.raw, HEADER + 8, 6)
    return s.count <= MAX_UNITS
  end

  function fixed.look(s, rule)
    local start = window_of(s.now, rule)
    if s.tag == TAG_FIXED_WINDOW then
      s.lasts = unpack_time(s.raw, HEADER + 1)
    end
    if s.tag == 0 or window_of(s.newest, rule) ~= start then
      s.count = 0
    elseif s.tag ~= TAG_FIXED_WINDOW then
      s.count = since(start, inherit(s, rule, MAX_LIMITS * rule.quota))
    end
    fixed.recount(s, rule)
  end

  function fixed.recount(s, rule)
    s.free = math.max(0, rule.quota - s.count)
  end

  function fixed.wait(s, rule)
    local _, finish = window_of(s.now, rule)
    return finish - s.now
  end

  -- A leased unit is spent in the window in which it was charged, so the bound of 2N also holds
  -- with leases.
  fixed.turn = fixed.wait

  function fixed.take(s, _, cost)
    s.count = s.count + cost
    s.free = s.free - cost
  end

  function fixed.give(s, rule, stamp, _, units)
    if window_of(stamp, rule) ~= window_of(s.now, rule) then
      return 0
    end
    units = math.min(units, s.count)
    s.count, s.changed = s.count - units, s.changed or units > 0
    return units
  end

  function fixed.charge(s, rule, stamps, units)
    local before, room = s.count, math.max(0, MAX_LIMITS * rule.quota - s.count)
    for i = 1, #stamps do
      if window_of(stamps[i], rule) == window_of(s.now, rule) then
        local some = math.min(units[i], room)
        s.count, room = s.count + some, room - some
      end
    end
    s.changed = s.changed or s.count > before
    return s.count - before
  end

  function fixed.empty(s)
    return s.count == 0
  end

  function fixed.write(s, rule)
    local _, finish = window_of(s.now, rule)
    local ends = s.charged and finish or math.max(finish, s.lasts) -- a key that is not charged keeps its expiry
    store(s, header(TAG_FIXED_WINDOW, s) .. pack_time(ends) .. pack_int(s.count, 6), finish)
  end

  function fixed.reset(s, rule)
    if s.count == 0 then
      return 0
    end
    return fixed.wait(s, rule)
  end

  -- It is not known when in the window the units were charged.
  function fixed.past(s, _, _, add)
    add(s.newest, s.count)
  end

  return fixed
end
