-- Fixed window: one count per window, windows aligned to the Unix epoch. The
-- window that a count belongs to is the one its newest charge lies in.
--
--   tag 5: header, count (6 bytes)

make[4] = function()
  local FIXED = 5

  local fixed = {}

  local function window_start(t, rule)
    return t - t % rule.window
  end

  function fixed.look(s, rule)
    s.count = 0
    if s.tag ~= 0 and window_start(s.newest, rule) == window_start(s.now, rule) then
      if s.tag == FIXED then
        s.count = fixed.held(s)
      else
        s.count = carried(s, rule)
      end
    end
    s.free = math.max(0, rule.quota - s.count)
  end

  function fixed.wait(s, rule)
    return window_start(s.now, rule) + rule.window - s.now
  end

  function fixed.take(s, _, cost)
    s.count = s.count + cost
    s.free = s.free - cost
  end

  function fixed.give(s, rule, stamp, _, units)
    if window_start(stamp, rule) ~= window_start(s.now, rule) then
      return 0
    end
    units = math.min(units, s.count)
    s.count, s.changed = s.count - units, units > 0
    s.free = math.max(0, rule.quota - s.count)
    return units
  end

  function fixed.empty(s)
    return s.count == 0
  end

  function fixed.write(s, rule)
    store(s, header(FIXED, s) .. pack_int(s.count, 6), window_start(s.now, rule) + rule.window)
  end

  function fixed.reset(s, rule)
    if s.count == 0 then
      return 0
    end
    return fixed.wait(s, rule)
  end

  function fixed.held(s)
    return unpack_int(s.raw, HEADER + 1, 6)
  end

  return fixed
end
