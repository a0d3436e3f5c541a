-- Sliding log: the time stamp of every unit. It is exact: a unit leaves when it is one window old, and a cost fits
-- when enough units have left.
--
-- Part of the decision script; numbers.lua lists the parts in their order.
--
--   takes  numbers; of state.lua made, code_of, inherit, since
--   gives  sliding_log(encoding), which makes the algorithm of an encoding
--
-- Decisions are right for any limit and window, whichever limit wrote the log. So two versions of a service with
-- different limits agree, and never convert the key. The log keeps the units that the largest of the limits needs:
-- "keep" units, for the time "longest".
--
-- An encoding stores the units: log_ring.lua, log_zset.lua. An encoding is a table of functions:
--
--   read(s)              sets s.count, the number of units stored, s.longest and s.keep. Returns
--                        whether they can be right
--   stamp(s, i)          the time stamp of the i-th stored unit; the oldest is number 0
--   expired(s, threshold)
--                        how many stored units have a stamp up to threshold
--   write(s, rule)       does one of four things. It adds s.added units charged now. Or it removes
--                        the s.given units that follow the s.left units that have left the
--                        window. Or it removes the units of s.released, a list of ranges: where each
--                        begins, and its number of units. Or it inserts the units of s.past in
--                        their places: a number of units for each of its stamps
--   most                 the number of units of the largest log
--
-- The stamps of a damaged state may be in any order, but are never above s.base.

local function sliding_log(encoding)
  local log = { read = encoding.read, write = encoding.write }

  -- The number of units that count now, under the rule's own window.
  local function live(s)
    return s.count - s.left - s.given + s.added
  end

  local function stamp(s, i)
    if i >= s.count then
      return s.now -- charged in this run
    elseif s.inherited then
      local inherited, g = s.inherited, 1
      while g < inherited.groups and inherited.up_to[g] < s.count - i do
        g = g + 1
      end
      return inherited.at[g]
    end
    return encoding.stamp(s, i)
  end

  -- The number of stored units with a stamp up to threshold.
  function log.up_to(s, threshold)
    if s.count == 0 or s.base <= threshold then
      return s.count
    elseif s.inherited then
      return s.count - since(threshold + 1, s.inherited)
    end
    return encoding.expired(s, threshold)
  end

  function log.rule(quota, window)
    return {
      algorithm = log, quota = quota, window = window, slack = math.max(1, floor(window / 16)),
      dims = pack_int(window, 6) .. pack_int(quota, 5), plain = encoding.plain, plain_give = encoding.plain_give,
      same_at = 0, same_cost = 0, same_value = '', same_answer = '', -- of a new key
    }
  end

  function log.look(s, rule)
    s.base = s.newest -- the time of the newest charge stored
    if s.tag ~= 0 and made[code_of[s.tag]] == log then
      s.longest, s.keep = math.max(s.longest, rule.window), math.max(s.keep, rule.quota)
    else
      s.inherited = s.tag ~= 0 and inherit(s, rule, math.min(encoding.most, MAX_LIMITS * rule.quota))
      s.count, s.longest = s.inherited and s.inherited.units or 0, rule.window
      s.keep = math.max(rule.quota, s.count)
      s.width, s.capacity = nil, nil -- there is no ring yet
    end
    s.left = log.up_to(s, s.now - rule.window)
    s.added, s.given, s.past, s.released = 0, 0, nil, nil -- units charged and given back in this run
    s.free = math.max(0, rule.quota - live(s))
  end

  function log.wait(s, rule, cost)
    local must_leave = live(s) + cost - rule.quota
    return math.max(0, stamp(s, s.left + s.given + must_leave - 1) + rule.window - s.now)
  end

  function log.take(s, _, cost)
    s.added = s.added + cost
    s.free = s.free - cost
  end

  -- Gives back the oldest units that count, and not the units of the charge itself. The oldest would have left
  -- first, so the remaining units leave no earlier than they should. A charge of 0 is undone: see release.
  function log.give(s, rule, at, charged, units)
    if charged == 0 then
      return log.release(s, rule, { at }, nil, { units })
    elseif at <= s.now - rule.window then
      return 0
    end
    units = math.min(units, live(s))
    s.given, s.changed = s.given + units, units > 0
    return units
  end

  -- Gives back the units of the charges made at these stamps: see release in hold.lua. Refunds give back the oldest
  -- units, which may have been these. Then units of the refunded charges still count in their place, and the oldest
  -- units are given back for those that are missing.
  function log.release(s, rule, stamps, _, units)
    local wanted, order, missing = {}, {}, 0
    for i = 1, #stamps do
      local at = stamps[i]
      if at > s.now - rule.window and at <= s.newest then
        if not wanted[at] then
          wanted[at] = 0
          order[#order + 1] = at
        end
        wanted[at] = wanted[at] + units[i]
        missing = missing + units[i]
      end
    end
    table.sort(order)
    local own, next_unit = {}, s.left
    for i = 1, #order do
      local at = order[i]
      local to = log.up_to(s, at)
      local n = math.min(wanted[at], to - next_unit)
      if n > 0 and stamp(s, to - n) < at then -- there are fewer units of this stamp
        n = math.min(n, to - log.up_to(s, at - 1))
      end
      if n > 0 then
        own[#own + 1] = { from = to - n, units = n }
        next_unit, missing = to, missing - n
      end
    end
    own[#own + 1] = { from = s.count, units = 0 } -- for the units after the others
    local ranges = {}
    next_unit = s.left
    for i = 1, #own do
      local oldest = math.min(missing, own[i].from - next_unit)
      if oldest > 0 then
        ranges[#ranges + 1] = { from = next_unit, units = oldest }
        s.given, missing = s.given + oldest, missing - oldest
      end
      if own[i].units > 0 then
        ranges[#ranges + 1] = own[i]
        s.given = s.given + own[i].units
      end
      next_unit = own[i].from + own[i].units
    end
    if s.given > 0 then
      s.released, s.changed = ranges, true
    end
    return s.given
  end

  -- All units are kept, up to the bound of charges. If only the newest units that the limit counts were kept, too
  -- few would remain when some are given back later, and for a larger limit.
  function log.charge(s, rule, stamps, units)
    local charged, past = 0, { stamps = {}, units = {} }
    for i = 1, #stamps do
      if stamps[i] > s.now - s.longest then
        past.stamps[i], past.units[i] = stamps[i], units[i]
        charged = charged + units[i]
      end
    end
    if charged > 0 then
      s.past, s.changed = past, true
      s.keep = math.max(s.keep, math.min(encoding.most, MAX_LIMITS * rule.quota, live(s) + charged))
    end
    return charged
  end

  -- The stamp of the youngest unit after the units of the past have been added.
  function log.youngest(s)
    local youngest = s.past.stamps[1]
    if s.count > 0 then
      youngest = math.max(youngest, stamp(s, s.count - 1))
    end
    return youngest
  end

  function log.empty(s)
    return s.count + s.added == s.given
  end

  -- Returns how many of the stored units are not needed once s.added more are stored: the units older than the
  -- longest window, and those beyond the newest "keep".
  function log.unneeded(s, rule)
    local gone = s.left
    if s.longest ~= rule.window then
      gone = log.up_to(s, s.now - s.longest)
    end
    return math.max(gone, s.count + s.added - s.keep)
  end

  function log.reset(s, rule)
    if live(s) == 0 then
      return 0
    end
    -- The youngest unit need not be of the newest charge, whose units may have been given back.
    return math.max(0, stamp(s, s.count + s.added - 1) + rule.window - s.now)
  end

  -- Reports the stored units. A counter gets the units of each of its sub-windows as a group, with a stamp in that
  -- sub-window. Other algorithms get groups of the same size, each at the time of its youngest unit.
  function log.past(s, rule, most, add)
    local units = math.min(most, s.count)
    local size = group_size(units)
    s.base = s.newest
    -- The stamp of the i-th newest unit, counted from 0.
    local function newest(i)
      return encoding.stamp(s, s.count - 1 - i)
    end
    local from, left = 0, rule.k and rule.k + 2 -- the number of groups left, which a damaged log could exceed
    while from < units do
      local stamp, to = newest(from), math.min(units, from + size)
      if left then
        left = left - 1
        local start, low = rule.algorithm.start(stamp, rule), from
        to = units
        while to - low > 1 and left > 0 do
          local middle = floor((low + to) / 2)
          if newest(middle) >= start then
            low = middle
          else
            to = middle
          end
        end
      end
      add(stamp, to - from)
      from = to
    end
  end

  encoding.log = log
  return log
end
