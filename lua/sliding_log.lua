-- Sliding log: the time stamp of every unit. Exact: a unit has left when it is one
-- window old, and a cost fits when enough have.
--
-- It is decided for any limit and window, whatever limit wrote it, so two versions of
-- a service with different limits agree and never re-lay the key. It keeps what the
-- largest of them needs: "keep" units of "longest" time.
--
-- How units are stored is an encoding's business: log_ring.lua, log_zset.lua. An
-- encoding is a table of functions:
--
--   load(s)              sets s.count, the units stored, s.longest and s.keep
--   stamp(s, i)          the time stamp of the i-th stored unit, the oldest being 0
--   expired(s, threshold)
--                        how many stored units have a stamp up to threshold
--   write(s, rule)       writes s.added units charged now, or takes out the s.given
--                        units behind the s.left ones that have left
--   held(s)              the units stored

local function sliding_log(encoding)
  local log = { held = encoding.held, write = encoding.write }

  -- The units that count now, under the rule's own window.
  local function live(s)
    return s.count - s.left - s.given + s.added
  end

  local function stamp(s, i)
    if i >= s.count then
      return s.now -- taken in this run
    elseif s.past then
      return s.past.at(floor((s.count - 1 - i) / s.past.size))
    end
    return encoding.stamp(s, i)
  end

  local function expired(s, window)
    local threshold = s.now - window
    if s.count == 0 or s.base <= threshold then
      return s.count
    elseif s.past then
      return s.count - since(threshold + 1, s.past)
    end
    return encoding.expired(s, threshold)
  end

  function log.rule(quota, window)
    return { algorithm = log, quota = quota, window = window }
  end

  function log.look(s, rule)
    s.base = s.newest -- of the newest charge stored
    s.count, s.longest, s.keep = 0, rule.window, rule.quota
    s.width, s.capacity = nil, nil -- of a ring, if there is one already
    if s.tag ~= 0 and made[code_of[s.tag]] == log then
      encoding.load(s)
      s.longest, s.keep = math.max(s.longest, rule.window), math.max(s.keep, rule.quota)
    elseif s.tag ~= 0 then
      s.past = past(s, rule)
      s.count = s.past.units
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

  -- How many of the stored units nobody needs once s.added more are there: those
  -- older than the longest window, and those beyond the newest "keep".
  function log.unneeded(s, rule)
    local gone = s.left
    if s.longest ~= rule.window then
      gone = expired(s, s.longest)
    end
    return math.max(gone, s.count + s.added - s.keep)
  end

  function log.reset(s, rule)
    if live(s) == 0 then
      return 0
    end
    -- The youngest unit need not be the newest charge's: that may have been given back.
    return stamp(s, s.count + s.added - 1) + rule.window - s.now
  end

  encoding.log = log
  return log
end
