-- Fixed window: one count per window, windows aligned to the Unix epoch. The
-- window that a count belongs to is the one its newest charge lies in.
--
--   tag 5: header, count (6 bytes)

local FIXED = 5

local fixed = {}

local function window_start(t, rule)
  return t - t % rule.window
end

function fixed.look(s, rule)
  s.count = 0
  if s.tag ~= 0 and window_start(s.newest, rule) == window_start(s.now, rule) then
    if s.tag == FIXED then
      s.count = unpack_int(s.raw, HEADER + 1, 6)
    else
      s.count = carried(s, rule)
    end
  end
  s.free = math.max(0, rule.quota - s.count)
end

local function until_next_window(s, rule)
  return window_start(s.now, rule) + rule.window - s.now
end

function fixed.wait(s, rule)
  return until_next_window(s, rule)
end

function fixed.take(s, rule, cost)
  s.count = s.count + cost
  store(s, header(FIXED, s) .. pack_int(s.count, 6), window_start(s.now, rule) + rule.window)
end

function fixed.reset(s, rule)
  if s.count == 0 then
    return 0
  end
  return until_next_window(s, rule)
end

algorithms[4] = fixed

held[FIXED] = function(s)
  return unpack_int(s.raw, HEADER + 1, 6)
end
