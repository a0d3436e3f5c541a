-- GCRA, the generic cell rate algorithm (ITU-T I.371, virtual scheduling).
--
-- One number per key: the theoretical arrival time (tat), at which the key's
-- debt is paid off. A unit moves it by the interval T = window/quota; a cost
-- fits while the tat stays within burst*T of now. T is no whole number of µs in
-- general: it is a + n/d, and the tat is kept as whole µs and d-ths of a µs, so
-- that rates never drift (law 10).
--
--   tag 4: header, tat (7 bytes); and only if d > 1: d-ths (6), d (6)

local GCRA = 4

-- The exact time that c units take, as whole µs and d-ths.
local function span(rule, c)
  local whole, part = muldiv(c, rule.n, rule.d)
  return c * rule.a + whole, part
end

local gcra = {}

function gcra.look(s, rule)
  local tat, part = s.now, 0
  if s.tag == GCRA then
    local stored = unpack_int(s.raw, HEADER + 1, 7)
    local stored_part = 0
    if #s.raw > HEADER + 7 then
      stored_part = unpack_int(s.raw, HEADER + 8, 6)
      if unpack_int(s.raw, HEADER + 14, 6) ~= rule.d then
        -- Another limit's fraction: round up, which never grants more.
        stored, stored_part = stored + 1, 0
      end
    end
    if stored >= tat then
      tat, part = stored, stored_part
    end
  elseif s.tag ~= 0 then
    local whole
    whole, part = span(rule, math.min(rule.burst, carried(s, rule)))
    tat = s.newest + whole
    if tat < s.now then
      tat, part = s.now, 0
    end
  end
  s.tat, s.part = tat, part

  -- What is left of the burst, as a time: now + burst*T - tat.
  local room, room_part = s.now + rule.burst_whole - tat, rule.burst_part - part
  if room_part < 0 then
    room, room_part = room - 1, room_part + rule.d
  end
  -- As units: (room + room_part/d) / T, which is (room*d + room_part) / (a*d + n).
  local free = 0
  if room >= 0 then
    local interval = rule.a * rule.d + rule.n
    local whole, rest = muldiv(room, rule.d, interval)
    free = whole + floor((rest + room_part) / interval)
  end
  s.free = free
end

function gcra.wait(s, rule, cost)
  local whole, part = span(rule, cost)
  local due, due_part = s.tat + whole - rule.burst_whole, s.part + part - rule.burst_part
  due = due + math.ceil(due_part / rule.d)
  return due - s.now
end

function gcra.take(s, rule, cost)
  local whole, part = span(rule, cost)
  s.tat, s.part = s.tat + whole, s.part + part
  if s.part >= rule.d then
    s.tat, s.part = s.tat + 1, s.part - rule.d
  end
  local value = header(GCRA, s) .. pack_int(s.tat, 7)
  if rule.d > 1 then
    value = value .. pack_int(s.part, 6) .. pack_int(rule.d, 6)
  end
  store(s, value, s.now + gcra.reset(s, rule))
end

function gcra.reset(s, rule)
  if s.part > 0 then
    return s.tat + 1 - s.now
  end
  return s.tat - s.now
end

algorithms[3] = gcra

held[GCRA] = function(s, rule)
  local debt = unpack_int(s.raw, HEADER + 1, 7) + 1 - s.now
  if debt <= 0 then
    return 0
  elseif debt >= rule.window then
    return rule.quota
  end
  return muldiv_up(debt, rule.quota, rule.window)
end
