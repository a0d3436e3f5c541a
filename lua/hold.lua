-- Holds: units charged for something whose cost is known only when it is over. A second
-- key of the same slot has a line for each hold of the first one that is open:
--
--   tag 8, first (7 bytes), last (7): when the first line is due, and when all are over; then,
--   for each hold: id (8), whether it is given back at its end (1), charged (7), ends (7),
--   units (7)
--
-- All times are the key's own. The first key's state does not depend on it: what is held is
-- charged there like any cost. The line says what to give back, and its absence that this
-- was done: so a settlement changes something once, however often it is sent (law 3).
--
-- A line stays for LATE after its hold's end: so long a settlement may come late. If the hold
-- was given back meanwhile, the line says that it holds nothing any more, and all that the
-- holder has used in the end is charged.
--
-- A part of the script that decides; numbers.lua says in which order the parts stand.
--
--   takes  numbers; of state.lua expiry, decimal, TAG_HOLDS
--   gives  the life of a hold, for frame.lua: hold, extend, take_hold, read_holds, write_holds,
--          end_holds, is_due, is_full, until_room, release, charge_used

local HOLDS_HEAD, HOLD_BYTES = 15, 30
local MOST_HOLDS = 1000 -- lines of a key
local LATE = 600000000 -- µs
local LONGEST_HOLD = 86400000000 -- µs
local NO_HOLD = '\0\0\0\0\0\0\0\0' -- the id that settles what was not held before

-- Whether something that is held is due by the key's own time, as far as the head tells.
local function is_due(e, s)
  local head = pcall('GETRANGE', e.holds, '0', decimal(HOLDS_HEAD - 1))
  return type(head) == 'string' and #head == HOLDS_HEAD and unpack_time(head, 2) <= s.now
end

-- Reads what is held of the entry's key into e. Returns false if it is not ours to read, or damaged.
local function read_holds(e)
  local raw = pcall('GET', e.holds)
  if not raw then
    e.first, e.last, e.lines = LATEST, 0, ''
    return true
  end
  if type(raw) == 'table' or byte(raw) ~= TAG_HOLDS or #raw < HOLDS_HEAD or #raw > HOLDS_HEAD + MOST_HOLDS * HOLD_BYTES
    or (#raw - HOLDS_HEAD) % HOLD_BYTES > 0 then
    return false
  end
  e.first, e.last, e.lines = unpack_time(raw, 2), unpack_time(raw, 9), sub(raw, HOLDS_HEAD + 1)
  return e.first <= LATEST and e.last <= LATEST
end

local function write_holds(e, s)
  if e.lines == '' then
    call('DEL', e.holds)
  else
    -- No later than a hold can end, though the clock may have stepped back.
    local last = math.max(s.now, math.min(e.last, s.now + LONGEST_HOLD + LATE))
    call('SET', e.holds, char(TAG_HOLDS) .. pack_time(e.first) .. pack_time(last) .. e.lines, expiry(last - s.offset))
  end
end

-- The hold whose line begins at a position: when it was charged, when it ends, its units. Of a
-- damaged line no more than can be written again.
local function hold_at(e, from)
  local charged, ends, units = unpack_time(e.lines, from + 9), unpack_time(e.lines, from + 16), unpack_time(e.lines, from + 23)
  return math.min(charged, LATEST), math.min(ends, LATEST), math.min(units, MOST_UNITS)
end

-- Where the line of the entry's hold begins; nothing if there is none.
local function find_hold(e)
  local from = find(e.lines, e.id, 1, true)
  while from and (from - 1) % HOLD_BYTES > 0 do
    from = find(e.lines, e.id, from + 1, true)
  end
  return from
end

-- Puts another line, or none, in the place of the one that begins at a position.
local function replace_line(e, from, line)
  e.lines = sub(e.lines, 1, from - 1) .. line .. sub(e.lines, from + HOLD_BYTES)
end

-- The line of a hold, which it makes sure is looked at when it is due.
local function line_of(e, id, gives_back, charged, ends, units)
  e.first = math.min(e.first, gives_back and ends or ends + LATE)
  e.last = math.max(e.last, ends + LATE)
  return id .. (gives_back and '\1' or '\0') .. pack_time(charged) .. pack_time(ends) .. pack_time(units)
end

-- Ends the holds that are due. Returns whether there were any, and of those to be given back
-- when they were charged and their units. Where there is no room for one more, those that have
-- merely ended go as well.
local function end_holds(e, s, full)
  local stamps, units = {}, {}
  if e.first > s.now and not full then
    return false, stamps, units
  end
  local due, before, kept, n = e.first <= s.now, e.lines, {}, 0
  e.first, e.last = LATEST, 0
  for from = 1, #before, HOLD_BYTES do
    local id, gives_back = sub(before, from, from + 7), byte(before, from + 8) == 1
    local charged, ends, held = hold_at(e, from)
    if gives_back and ends <= s.now then
      if held > 0 then
        stamps[#stamps + 1], units[#units + 1] = charged, held
      end
      gives_back, ends, held = false, s.now, 0
    end
    if ends > s.now or (ends + LATE > s.now and not full) then
      n = n + 1
      kept[n] = line_of(e, id, gives_back, charged, ends, held)
    end
  end
  e.lines = concat(kept)
  return due or e.lines ~= before, stamps, units
end

local function is_full(e)
  return #e.lines >= MOST_HOLDS * HOLD_BYTES
end

-- µs until a hold ends: then there is room for another one.
local function until_room(e, s)
  local first = LATEST
  for from = 1, #e.lines, HOLD_BYTES do
    local _, ends = hold_at(e, from)
    first = math.min(first, ends)
  end
  return math.max(0, math.min(first - s.now, LONGEST_HOLD))
end

-- Charges units for the entry's hold, in memory.
local function hold(e, s, rule, units)
  -- Before the charge is written: if only one of the two comes to be, it is this.
  e.lines = e.lines .. line_of(e, e.id, rule.gives_back, s.now, s.now + e.life, units)
  write_holds(e, s)
  rule.algorithm.take(s, rule, units)
  s.newest, s.charged, s.changed = s.now, true, true
end

-- Makes the entry's hold last for its life from now on, unless it lasts longer. Returns whether it is
-- there, and sets e.told to how long it lasts.
local function extend(e, s, rule)
  local from = find_hold(e)
  if not from then
    return 0
  end
  local charged, ends, units = hold_at(e, from)
  if units == 0 then -- it was given back
    return 0
  end
  ends = math.max(ends, s.now + e.life)
  e.told = math.min(ends - s.now, LONGEST_HOLD)
  replace_line(e, from, line_of(e, e.id, rule.gives_back, charged, ends, units))
  write_holds(e, s)
  return 1
end

-- Takes the entry's hold out. Returns when it was charged and its units; nothing if it is not there.
local function take_hold(e, s)
  if e.id == NO_HOLD then
    return s.now, 0
  end
  local from = find_hold(e)
  if not from then
    return
  end
  local charged, _, units = hold_at(e, from)
  replace_line(e, from, '')
  write_holds(e, s)
  return charged, units
end

-- Gives back so many units of each of the charges made at these stamps, in memory, as far as
-- they still count: those very units, as if they had never been charged. Returns how many.
local function release(s, rule, stamps, charged, units)
  if rule.algorithm.release then
    return rule.algorithm.release(s, rule, stamps, units)
  end
  local given = 0
  for i = 1, #stamps do
    if stamps[i] <= s.newest then -- or else the key no longer knows of it
      given = given + rule.algorithm.give(s, rule, stamps[i], charged[i], units[i])
    end
  end
  return given
end

-- Charges units that were used already, in memory, whether or not they fit. Returns how many count.
local function charge_used(s, rule, units)
  local charge = rule.algorithm.owe or rule.algorithm.charge
  local charged = charge(s, rule, { s.now }, { units })
  if s.changed then
    s.newest, s.charged = s.now, true
  end
  return charged
end
