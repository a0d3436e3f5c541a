-- GCRA, the generic cell rate algorithm (ITU-T I.371, virtual scheduling).
--
-- Part of the decision script; numbers.lua lists the parts in their order.
--
--   takes  numbers; state.lua
--   gives  make[GCRA]
--
-- One number per key: the theoretical arrival time (tat), at which the key's debt is paid off. A unit moves it by
-- the interval T = window/quota; a cost fits while the tat stays within burst*T of now. In general T is not a whole
-- number of µs: in lowest terms it is interval/d, or a + n/d. The tat is kept as whole µs and d-ths of a µs, so
-- rates never drift (law 10).
--
--   tag 4: header, tat (7 bytes), quota (6), window (6); and the d-ths (6) unless they are 0

make[GCRA] = function()
  local SHORT, LONG = HEADER + 19, HEADER + 25 -- bytes of a state without and with d-ths
  -- The largest debt of any rule, see rule.most: a quota returns within the longest window, and so does a burst.
  local MOST = MAX_LIMITS * LONGEST_WINDOW

  local gcra = {}

  -- The exact time of c units, as whole µs and d-ths of a µs.
  local function span(rule, c)
    if c == 1 then
      return rule.a, rule.n
    end
    local whole, part = muldiv(c, rule.n, rule.d)
    return c * rule.a + whole, part
  end

  -- The d-ths of a µs in the tat of a state as read.
  local function part_of(raw)
    if #raw > SHORT then
      return unpack_int(raw, SHORT + 1, 6)
    end
    return 0
  end

  -- A limit's interval, and its d.
  local function rate_of(quota, window)
    local divisor, rest = quota, window
    while rest > 0 do -- Euclid's algorithm
      local next_rest = divisor % rest -- (miniredis gets a parallel assignment wrong)
      divisor, rest = rest, next_rest
    end
    return window / divisor, quota / divisor
  end

  -- The number of units that are free.
  local function free(s, rule)
    local debt, d, interval = s.tat - s.now, rule.d, rule.interval
    if debt < 0 then
      return rule.burst
    end
    local room, room_part = rule.burst_whole - debt, rule.burst_part - s.part
    if room_part < 0 then
      room, room_part = room - 1, room_part + d
    end
    if room < 0 then
      return 0
    elseif d == 1 then
      return (room - room % interval) / interval
    end
    -- This is (room + room_part/d) / T.
    local whole, rest = muldiv(room, d, interval)
    return whole + floor((rest + room_part) / interval)
  end

  function gcra.recount(s, rule)
    s.free = free(s, rule)
  end

  -- Sets a negative debt to 0: it was paid off before now, or units were given back in memory.
  local function pay_off(s)
    if s.tat < s.now then
      s.tat, s.part = s.now, 0
    end
  end

  -- Moves the tat by a time, which is negative if units are given back.
  local function move(s, rule, whole, part)
    s.tat, s.part = s.tat + whole, s.part + part
    if s.part >= rule.d then
      s.tat, s.part = s.tat + 1, s.part - rule.d
    elseif s.part < 0 then
      s.tat, s.part = s.tat - 1, s.part + rule.d
    end
  end

  -- Returns the debt that units of the past, the youngest first, would have left by now if there had been no other
  -- units.
  local function debt_of(s, rule, stamps, units)
    local debt, part, before = 0, 0, 0
    for i = #stamps, 1, -1 do
      local at = math.max(before, stamps[i]) -- the stamps of a damaged log may be in any order
      debt = debt - (at - before)
      if debt < 0 then
        debt, part = 0, 0
      end
      local whole, more = span(rule, math.min(units[i], rule.most))
      debt, part, before = debt + whole, part + more, at
      if part >= rule.d then
        debt, part = debt + 1, part - rule.d
      end
    end
    debt = debt - (s.now - before)
    if debt < 0 then
      return 0, 0
    end
    return debt, part
  end

  -- Returns the time until which a state matters. That is a window after the newest charge, because another
  -- algorithm may follow (see past), or later if the debt lasts longer. It is rounded up by up to a sixteenth of
  -- the window, so that most charges need not set the expiry.
  local function matters(rule, newest, tat, part)
    local t = newest + rule.window
    if tat >= t then
      t = tat + (part > 0 and 1 or 0)
    end
    return t + rule.slack - t % rule.slack
  end

  local p = { now = 0, tat = 0, part = 0, newest = 0, changed = false } -- of the current key

  -- Answers a request of no more than the burst that does not fit, so the key has a debt.
  local function plain_denial(raw, newest, rule, cost)
    p.now, p.tat, p.part = clock, unpack_time(raw, HEADER + 1), part_of(raw)
    if p.part >= rule.d or p.tat > newest + 2 * MOST then
      return
    end
    local reset, wait = gcra.reset(p), gcra.wait(p, rule, cost)
    if cost == 1 then
      return denial(0, reset, wait, wait)
    end
    return denial(free(p, rule), reset, wait, gcra.wait(p, rule, 1))
  end

  -- Nearly all requests are for units that are free, of a key that is new, or that was charged before under the
  -- same limit and has no offset. These are decided here, on the fast path. The code makes few strings, because
  -- making one takes longer than some ten operations.
  local function plain(key, cost, rule, may_deny)
    local raw, now, newest, tat, part, lasts = pcall('GET', key) or '', clock, 0, 0, 0, 0
    local length, window, slack = #raw, rule.window, rule.slack -- the length is 0 if it is no string
    if length == SHORT or length == LONG then
      local tag, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, t, u, v = byte(raw, 1, 22)
      newest = (((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g
      if tag ~= TAG_GCRA or h + i + j + k + l + m + n > 0 or newest > now or find(raw, rule.rate, 23, true) ~= 23 then
        seen_key, seen = key, raw
        return
      end
      tat = (((((o * 256 + p) * 256 + q) * 256 + r) * 256 + t) * 256 + u) * 256 + v
      if length == LONG then
        part = unpack_int(raw, 35, 6)
      end
      lasts = newest + window -- see matters; a call of it would cost as much as the rest of its work
      if tat >= lasts then
        lasts = tat + (part > 0 and 1 or 0)
      end
      lasts = lasts - lasts % slack
    elseif raw ~= '' then
      seen_key, seen = key, raw
      return
    end

    local value, ends, encoded
    local idle = tat < now
    if idle and now == rule.same_at and cost == rule.same_cost then
      value, ends, encoded = rule.same_value, rule.same_ends, rule.same_answer
    else
      if idle then
        tat, part = now, 0
      end
      local d = rule.d
      tat, part = tat + rule.a * cost, part + rule.n * cost
      if part >= d then
        local more = part % d
        tat, part = tat + (part - more) / d, more
      end
      local room = now + rule.burst_whole
      if tat > room or (tat == room and part > rule.burst_part) then
        seen_key, seen = key, raw
        return may_deny and cost <= rule.burst and plain_denial(raw, newest, rule, cost)
      end

      value = header_of_now(TAG_GCRA) .. char(bytes_of(tat)) .. rule.rate
      encoded, ends = value, now + window
      if part > 0 then
        value = value .. pack_int(part, 6)
        encoded = ANSWER_WITH_PARTS .. value
      end
      if tat >= ends then
        ends = tat + (part > 0 and 1 or 0)
      end
      ends = ends - ends % slack
      if idle then
        rule.same_at, rule.same_cost, rule.same_value, rule.same_ends, rule.same_answer = now, cost, value, ends, encoded
      end
    end
    if ends == lasts and #value == length then
      put('SETRANGE', key, '0', value)
    else
      put('SET', key, value, expiry(ends + slack))
    end
    return encoded
  end

  local function plain_give(key, rule, stamp, charged, units, alike)
    local raw = pcall('GET', key) or ''
    seen_key, seen = key, raw
    if #raw ~= SHORT and #raw ~= LONG then
      return
    end
    local tag, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, q, r, t, u, v, w = byte(raw, 1, 22)
    if tag ~= TAG_GCRA or h + i + j + k + l + m + n > 0 or find(raw, rule.rate, 23, true) ~= 23 then
      return
    end
    local now, newest = clock, (((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g
    local tat, part = (((((o * 256 + q) * 256 + r) * 256 + t) * 256 + u) * 256 + v) * 256 + w, part_of(raw)
    if newest > now or (stamp and stamp > newest) or tat < newest or tat > newest + 2 * MOST or part >= rule.d then
      return
    end
    p.now, p.newest, p.tat, p.part, p.changed = now, newest, tat, part, false
    local given
    if alike then
      given = gcra.release(p, rule, alike.stamps, nil, alike.units, alike)
    else
      given = gcra.give(p, rule, stamp, charged, units)
    end
    if p.changed and gcra.empty(p) then -- changed also if less than a unit was given back
      return
    end
    seen_key = nil
    if p.changed then
      local tail = pack_time(p.tat) .. rule.rate
      if p.part > 0 then
        tail = tail .. pack_int(p.part, 6)
      end
      if HEADER + #tail == #raw then
        call('SETRANGE', key, '15', tail)
      else
        call('SET', key, sub(raw, 1, HEADER) .. tail, 'KEEPTTL')
      end
    end
    return given, free(p, rule), gcra.reset(p)
  end

  -- Parameters: burst (7 bytes), interval (6), d (6).
  function gcra.rule(quota, window, params)
    local interval, d = unpack_int(packed, params + 7, 6), unpack_int(packed, params + 13, 6)
    local rule = {
      algorithm = gcra, quota = quota, window = window, burst = unpack_int(packed, params, 7), plain_give = plain_give,
      interval = interval, d = d, a = floor(interval / d), n = interval % d, most_plain = floor(2 ^ 52 / (interval / d + d)),
      rate = pack_int(quota, 6) .. pack_int(window, 6), burst_whole = 0, burst_part = 0, most = 0,
      slack = math.max(1, floor(window / 16)), plain = plain,
      same_at = 0, same_cost = 0, same_value = '', same_ends = 0, same_answer = '', -- of a key without debt
    }
    rule.burst_whole, rule.burst_part = span(rule, rule.burst)
    rule.most = MAX_LIMITS * math.max(quota, rule.burst) -- units of debt
    return rule
  end

  -- Sets s.interval and s.d to those of the limit under which the state was written, and s.same to whether that is
  -- the rule's limit.
  function gcra.read(s, rule)
    local raw = s.raw
    if #raw ~= SHORT and #raw ~= LONG then
      return false
    end
    s.tat, s.part = unpack_time(raw, HEADER + 1), part_of(raw)
    s.same = sub(raw, HEADER + 8, SHORT) == rule.rate
    if s.same then
      s.interval, s.d = rule.interval, rule.d
    else
      local quota, window = unpack_int(raw, HEADER + 8, 6), unpack_int(raw, HEADER + 14, 6)
      if quota < 1 or quota > MAX_UNITS or window < 1 or window > LONGEST_WINDOW then
        return false
      end
      s.interval, s.d = rate_of(quota, window)
    end
    -- When units are given back after a change of limits, the converted debt may be written long after the newest
    -- charge.
    return s.part < s.d and s.tat >= s.newest and s.tat <= s.newest + 2 * MOST
  end

  function gcra.look(s, rule)
    local debt, part = 0, 0
    if s.tag == TAG_GCRA and s.same then
      debt, part = s.tat - s.now, s.part
      s.lasts = matters(rule, s.newest, s.tat, part)
    elseif s.tag == TAG_GCRA then
      -- Another limit's debt: it becomes the same number of units at the newest charge, but no more than charges lead
      -- to, at this limit's interval, rounded up to what can be stored, and has been paid off at this limit's rate
      -- since. If the current debt were converted instead, each denial would convert less of it, and no wait in an
      -- answer would be true.
      local interval, d = s.interval, s.d
      local units, rest = muldiv(s.tat - s.newest, d, interval)
      rest = rest + s.part -- several units, if more than one returns within a µs
      units, rest = units + floor(rest / interval), rest % interval
      if units >= rule.most then
        units, rest = rule.most, 0
      end
      debt, part = span(rule, units)
      part = part + muldiv_up(rest, rule.interval, interval)
      debt, part = debt + floor(part / rule.d), part % rule.d
      debt = debt - (s.now - s.newest)
    elseif s.tag ~= 0 then
      -- Another algorithm's units count as if they had been charged under this rule, at most as many as let one
      -- unit fit a window later.
      local from = inherit(s, rule, rule.quota + rule.burst - 1)
      debt, part = debt_of(s, rule, from.at, from.each)
    end
    s.tat, s.part = s.now + debt, part
    s.free = free(s, rule)
  end

  function gcra.wait(s, rule, cost)
    pay_off(s)
    local whole, part = span(rule, cost)
    local due, due_part = s.tat + whole - rule.burst_whole, s.part + part - rule.burst_part
    return due + math.ceil(due_part / rule.d) - s.now
  end

  function gcra.take(s, rule, cost)
    pay_off(s)
    move(s, rule, span(rule, cost))
    s.free = s.free - cost
  end

  -- At first a charge makes the debt larger by span(charged) than it would be without the charge. That difference
  -- shrinks only while the key would otherwise have no debt. So at least span(charged) less the time since the
  -- charge is left of it. At most this much is given back, which never grants more than if the charge had not been
  -- made.
  function gcra.give(s, rule, stamp, charged, units)
    local left, left_part = span(rule, charged)
    left = left - (s.now - stamp)
    if left < 0 or gcra.reset(s) == 0 then
      return 0
    end
    local whole, part = span(rule, units)
    if left < whole or (left == whole and left_part < part) then
      local w, rest = muldiv(left, rule.d, rule.interval)
      units = w + floor((rest + left_part) / rule.interval)
      whole, part = left, left_part
    end
    s.changed = true
    move(s, rule, -whole, -part)
    return units
  end

  -- The same for several charges, one after the other. If the key's debt exceeds what all charges of one time give
  -- back, the order of these charges does not matter.
  function gcra.release(s, rule, stamps, charged, units, alike)
    local given, last = 0, 0
    for i = 1, #stamps do
      local stamp, first = stamps[i], last + 1
      if alike then
        last = alike.last[i]
      end
      if stamp <= s.newest and not alike then -- otherwise the key no longer knows of the charge
        given = given + gcra.give(s, rule, stamp, charged[i], units[i])
      elseif stamp <= s.newest then
        local ago, each, held = s.now - stamp, alike.each, alike.held
        local gone = muldiv_up(ago, rule.d, rule.interval) -- the number of a charge's units of which nothing is left
        local sum, cut, whole_charges = 0, 0, 0 -- cut: number of charges of which all that is left is given back
        for k = first, last do
          if each[k] <= held[k] - gone then
            sum = sum + each[k]
          elseif held[k] >= gone then
            cut, whole_charges = cut + 1, whole_charges + held[k]
          end
        end
        local whole, part = span(rule, sum + whole_charges)
        if whole < 2 ^ 53 and s.tat - s.now > whole - cut * ago then
          if whole + part > 0 then
            s.changed = true
            move(s, rule, cut * ago - whole, -part)
          end
          given = given + sum + whole_charges - cut * gone
        else
          for k = first, last do
            given = given + gcra.give(s, rule, stamp, held[k], each[k])
          end
        end
      end
    end
    return given
  end

  -- Adds to the key's debt the debt that these units alone would have left by now. So the two debts count as paid off
  -- at the same time; had they been one debt, they would have been paid off one after the other. That is why instances
  -- that each granted part of a key's units send, without an age, what is left of them at their own part of the rate.
  function gcra.charge(s, rule, stamps, units)
    local debt, part = debt_of(s, rule, stamps, units)
    pay_off(s)
    local room, room_part = span(rule, rule.most)
    room, room_part = room - (s.tat - s.now), room_part - s.part
    if room_part < 0 then
      room, room_part = room - 1, room_part + rule.d
    end
    if debt > room or (debt == room and part > room_part) then
      debt, part = room, room_part
    end
    if debt < 0 or (debt == 0 and part == 0) then
      return 0
    end
    s.changed = true
    move(s, rule, debt, part)
    local charged, rest = muldiv(debt, rule.d, rule.interval)
    return charged + floor((rest + part) / rule.interval)
  end

  function gcra.empty(s)
    return s.tat < s.newest or (s.tat == s.newest and s.part == 0)
  end

  function gcra.write(s, rule)
    local value = header(TAG_GCRA, s) .. pack_time(s.tat) .. rule.rate
    if s.part > 0 then
      value = value .. pack_int(s.part, 6)
    end
    store(s, value, matters(rule, s.newest, s.tat, s.part))
  end

  function gcra.reset(s)
    local debt = s.tat - s.now
    if s.part > 0 then
      debt = debt + 1
    end
    return debt > 0 and debt or 0
  end

  -- The units granted up to the newest charge, as far as the tat shows. Each unit moved the tat by at least T, so
  -- from any time on there were at most (tat - time)/T units: the j-th newest came at tat - j*T at the latest, and
  -- not after the newest charge. Only units of the last window that the new rule asks for are listed, and only as
  -- far back as the old rule's window, which is how long the key lives.
  function gcra.past(s, rule, most, add)
    local interval, d, tat, part, newest = s.interval, s.d, s.tat, s.part, s.newest
    local longest = math.min(rule.window > 0 and rule.window or MOST, unpack_int(s.raw, HEADER + 14, 6))
    local units, rest = muldiv(tat - newest + longest - 1, d, interval)
    units = math.min(most, units + floor((rest + part) / interval))
    local size = group_size(units)
    for i = 0, units - 1, size do
      local whole, rest = muldiv(i + 1, interval, d)
      add(math.min(newest, tat - whole - (part < rest and 1 or 0)), math.min(size, units - i))
    end
  end

  return gcra
end
