-- Holds: units charged for something whose cost is known only when it is over. A second
-- key of the same slot has a line for each hold of the first one that is open:
--
--   tag 8, first (7 bytes), last (7): when the first line is due, and when all are over; then,
--   for each hold: id (8), whether it is given back at its end (1), charged (7), ends (7),
--   units (7)
--
-- What was read is kept with the key's state, and written before that is: so entries of one key
-- that stand side by side read and write it once. What comes by itself, and is like most, is
-- decided straight through.
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
--   gives  the life of a hold, for frame.lua: hold, extend, take_hold, take_holds, read_holds,
--          write_holds, forget_holds, end_holds, is_due, is_full, room_for, until_room, release,
--          charge_at, charge_used; hold_plainly, settle_plainly

local HOLDS_HEAD, HOLD_BYTES = 15, 30
local MOST_HOLDS = 1000 -- lines of a key
local LATE = 600000000 -- µs
local LONGEST_HOLD = 86400000000 -- µs
local NO_HOLD = '\0\0\0\0\0\0\0\0' -- the id that settles what was not held before
local SETTLED = '\0\5\0\0\0\0\0\0\4' -- how the answer to a settlement that was made begins, see frame.lua
local EACH_ID = '........' -- a pattern
local SETTLED_BYTES = 15 -- what a SETTLE with a count says of each, behind the first: id (8), units used (7)

-- Whether something that is held is due by the key's own time, as far as the head tells.
local function is_due(e, s)
  if s.holds then
    return s.first <= s.now
  end
  local head = pcall('GETRANGE', e.holds, '0', decimal(HOLDS_HEAD - 1))
  return type(head) == 'string' and #head == HOLDS_HEAD and unpack_time(head, 2) <= s.now
end

-- Reads what is held of the entry's key. Returns false if it is not ours to read, or damaged.
local function read_holds(e, s)
  if s.holds then
    return true
  end
  local raw = pcall('GET', e.holds)
  if not raw then
    s.holds, s.first, s.last, s.lines = e.holds, LATEST, 0, ''
    return true
  end
  if type(raw) == 'table' or byte(raw, 1, 1) ~= TAG_HOLDS or #raw < HOLDS_HEAD or #raw > HOLDS_HEAD + MOST_HOLDS * HOLD_BYTES
    or (#raw - HOLDS_HEAD) % HOLD_BYTES > 0 then
    return false
  end
  local first, last = unpack_time(raw, 2), unpack_time(raw, 9)
  if first > LATEST or last > LATEST then
    return false
  end
  s.holds, s.first, s.last, s.lines = e.holds, first, last, sub(raw, HOLDS_HEAD + 1)
  return true
end

-- Forgets what was read: another key comes.
local function forget_holds(s)
  s.holds, s.holds_changed = nil, false
end

local function write_holds(s)
  s.holds_changed = false
  if s.lines == '' then
    call('DEL', s.holds)
  else
    -- No later than a hold can end, though the clock may have stepped back.
    local last = math.max(s.now, math.min(s.last, s.now + LONGEST_HOLD + LATE))
    call('SET', s.holds, char(TAG_HOLDS) .. pack_time(s.first) .. pack_time(last) .. s.lines, expiry(last - s.offset))
  end
end

-- The hold whose line begins at a position of a text: when it was charged, when it ends, its units. Of
-- a damaged line no more than can be written again.
local function hold_in(text, from)
  local charged, ends, units = unpack_time(text, from + 9), unpack_time(text, from + 16), unpack_time(text, from + 23)
  return math.min(charged, LATEST), math.min(ends, LATEST), math.min(units, MOST_UNITS)
end

local function hold_at(s, from)
  return hold_in(s.lines, from)
end

-- Where the line of a hold begins, at a position or behind it; nothing if there is none.
local function find_line(lines, id, behind)
  local from = find(lines, id, behind, true)
  while from and (from - 1) % HOLD_BYTES > 0 do
    from = find(lines, id, from + 1, true)
  end
  return from
end

-- Where the line of the entry's hold begins; nothing if there is none.
local function find_hold(e, s)
  return find_line(s.lines, e.id, 1)
end

-- Puts another line, or none, in the place of the one that begins at a position.
local function replace_line(s, from, line)
  s.lines, s.holds_changed = sub(s.lines, 1, from - 1) .. line .. sub(s.lines, from + HOLD_BYTES), true
end

-- The line of a hold, which it makes sure is looked at when it is due.
local function line_of(s, id, gives_back, charged, ends, units)
  s.first = math.min(s.first, gives_back and ends or ends + LATE)
  s.last = math.max(s.last, ends + LATE)
  return id .. (gives_back and '\1' or '\0') .. pack_time(charged) .. pack_time(ends) .. pack_time(units)
end

-- Ends the holds that are due. Returns of those to be given back when they were charged and their
-- units; nothing if there are none. Where there is no room for one more, those that have merely ended go as well.
local function end_holds(s, full)
  if s.first > s.now and not full then
    return
  end
  local stamps, units = {}, {}
  local due, before, kept, n = s.first <= s.now, s.lines, {}, 0
  s.first, s.last = LATEST, 0
  for from = 1, #before, HOLD_BYTES do
    local id, gives_back = sub(before, from, from + 7), byte(before, from + 8) == 1
    local charged, ends, held = hold_at(s, from)
    if gives_back and ends <= s.now then
      if held > 0 then
        stamps[#stamps + 1], units[#units + 1] = charged, held
      end
      gives_back, ends, held = false, s.now, 0
    end
    if ends > s.now or (ends + LATE > s.now and not full) then
      n = n + 1
      kept[n] = line_of(s, id, gives_back, charged, ends, held)
    end
  end
  s.lines = concat(kept)
  s.holds_changed = s.holds_changed or due or s.lines ~= before
  if #stamps > 0 then
    return stamps, units
  end
end

local function is_full(s)
  return #s.lines >= MOST_HOLDS * HOLD_BYTES
end

-- How many holds of a count can be opened, if so many of them fit; and whether the next one is denied
-- because there is no room for its line.
local function room_for(s, fits, count)
  local room = MOST_HOLDS - #s.lines / HOLD_BYTES
  if fits >= room and count > room then -- one of them finds no room, and ends those that have merely ended
    end_holds(s, true)
    room = MOST_HOLDS - #s.lines / HOLD_BYTES
  end
  fits = math.min(fits, room)
  return fits, fits == room and fits < count
end

-- µs until a hold ends: then there is room for another one.
local function until_room(s)
  local first = LATEST
  for from = 1, #s.lines, HOLD_BYTES do
    local _, ends = hold_at(s, from)
    first = math.min(first, ends)
  end
  return math.max(0, math.min(first - s.now, LONGEST_HOLD))
end

-- Charges units for each of the entry's first n holds, in memory.
local function hold(e, s, rule, units, n)
  local line, others = line_of(s, e.id, rule.gives_back, s.now, s.now + e.life, units), ''
  if n > 1 then -- the lines of the others differ from it by their ids only
    local after_id = gsub(sub(line, 9), '%%', '%%%%')
    others = gsub(sub(packed, e.others, e.others + 8 * (n - 1) - 1), EACH_ID, '%0' .. after_id)
  end
  s.lines, s.holds_changed = s.lines .. line .. others, true
  rule.algorithm.take(s, rule, units * n)
  s.newest, s.charged, s.changed = s.now, true, true
end

-- Makes the entry's hold last for its life from now on, unless it lasts longer. Returns whether it is
-- there, and sets e.told to how long it lasts.
local function extend(e, s, rule)
  local from = find_hold(e, s)
  if not from then
    return 0
  end
  local charged, ends, units = hold_at(s, from)
  if units == 0 then -- it was given back
    return 0
  end
  ends = math.max(ends, s.now + e.life)
  e.told = math.min(ends - s.now, LONGEST_HOLD)
  replace_line(s, from, line_of(s, e.id, rule.gives_back, charged, ends, units))
  return 1
end

-- Takes the entry's hold out. Returns when it was charged and its units; nothing if it is not there.
local function take_hold(e, s)
  if e.id == NO_HOLD then
    return s.now, 0
  end
  local from = find_hold(e, s)
  if not from then
    return
  end
  local charged, _, units = hold_at(s, from)
  replace_line(s, from, '')
  return charged, units
end

-- Takes out the lines of all the holds that a SETTLE with a count is about. Returns how many there were;
-- what is to be given back of them, see release; and how many units are to be charged in addition. Sets
-- e.outcomes to what a SETTLE of each would have returned.
local function take_holds(e, s)
  local lines, id, used, at, behind = s.lines, e.id, e.cost, e.others, 1
  local taken, outcomes, there, more = {}, {}, 0, 0
  local same, stamp, _, units -- the line before without its id, and what it says
  local groups, stamps, charged, sums, mosts, lasts, each, n = 0, {}, {}, {}, {}, {}, {}, 0
  for i = 1, e.count do
    -- Holds are mostly settled in the order of their lines.
    local from = find(lines, id, behind, true)
    if not from or from % HOLD_BYTES ~= 1 then
      from = find_line(lines, id, behind) or (behind > 1 and find_line(lines, id, 1))
    end
    if from and not taken[from] then
      taken[from], behind, there = true, from + HOLD_BYTES, there + 1
      local line = sub(lines, from + 9, from + HOLD_BYTES - 1)
      if line ~= same then -- those that were held together have the same, if they hold as many units
        same, groups = line, groups + 1
        stamp, _, units = hold_in(lines, from)
        stamps[groups], charged[groups], sums[groups], mosts[groups], lasts[groups] = stamp, units, 0, 0, n
      end
      local back = units - used
      if back > 0 then
        n = n + 1
        each[n], lasts[groups], sums[groups] = back, n, sums[groups] + back
        if back > mosts[groups] then
          mosts[groups] = back
        end
      else
        more = more - back
      end
      outcomes[i] = units == 0 and '\2' or '\1'
    else
      outcomes[i] = '\0'
    end
    if i < e.count then
      id = sub(packed, at, at + 7)
      local a, b, c, d, f, g, h = byte(packed, at + 8, at + 14)
      used = (((((a * 256 + b) * 256 + c) * 256 + d) * 256 + f) * 256 + g) * 256 + h
      at = at + SETTLED_BYTES
    end
  end
  e.outcomes = concat(outcomes)

  local kept, k, start = {}, 0, 1
  for from = 1, #lines, HOLD_BYTES do
    if taken[from] then
      if from > start then
        k = k + 1
        kept[k] = sub(lines, start, from - 1)
      end
      start, s.holds_changed = from + HOLD_BYTES, true
    end
  end
  kept[k + 1] = sub(lines, start)
  s.lines = concat(kept)
  local alike = n > 0 and { stamps = stamps, charged = charged, units = sums, most = mosts, last = lasts, each = each }
  return there, alike, more
end

-- Gives back so many units of each of the charges made at these stamps, in memory, as far as
-- they still count: those very units, as if they had never been charged. Returns how many.
--
-- What several charges alike, made at the same time, give back may come as one sum. The algorithm that needs to
-- know what it consists of finds it in alike: of the i-th sum most[i], the largest part, and in each its
-- parts, behind those of the sum before and up to last[i].
local function release(s, rule, stamps, charged, units, alike)
  if rule.algorithm.release then
    return rule.algorithm.release(s, rule, stamps, charged, units, alike)
  end
  local given = 0
  for i = 1, #stamps do
    if stamps[i] <= s.newest then -- or else the key no longer knows of it
      given = given + rule.algorithm.give(s, rule, stamps[i], charged[i], units[i])
    end
  end
  return given
end

-- Charges units that were used already, at the given stamps, in memory, whether or not they fit. Returns
-- how many count. Units that were given back in memory before do not make it a charge.
local function charge_at(s, rule, charge, stamps, units)
  local changed = s.changed
  s.changed = false
  local charged = charge(s, rule, stamps, units)
  if s.changed then
    s.newest, s.charged = s.now, true
  end
  s.changed = s.changed or changed
  return charged
end

-- The same for units used now.
local function charge_used(s, rule, units)
  return charge_at(s, rule, rule.algorithm.charge, { s.now }, { units })
end

-- What is held of a key, as text, where it is ours and sound; nothing otherwise.
local function sound_holds(key)
  local raw = pcall('GET', key)
  if not raw then
    return ''
  end
  if type(raw) == 'string' and byte(raw, 1, 1) == TAG_HOLDS and #raw > HOLDS_HEAD
    and #raw <= HOLDS_HEAD + MOST_HOLDS * HOLD_BYTES and (#raw - HOLDS_HEAD) % HOLD_BYTES == 0 then
    return raw
  end
end

-- Most holds are for units that are free, of a key of whose holds none is due. Where one comes alone it
-- is decided and written here, straight through: see "plain" in state.lua. Returns the answer, or
-- nothing where there is more to it: then nothing was decided.
local function hold_plainly(keys, rule, units, id, life)
  local raw = sound_holds(keys[2])
  if not raw or #raw == HOLDS_HEAD + MOST_HOLDS * HOLD_BYTES then
    return
  end
  local first, last, lines = LATEST, 0, ''
  if raw ~= '' then
    first, last, lines = unpack_time(raw, 2), unpack_time(raw, 9), sub(raw, HOLDS_HEAD + 1)
    if first <= clock or first > LATEST or last > clock + LONGEST_HOLD + LATE then
      return
    end
  end
  local told = rule.straight(keys[1], units, rule)
  if not told then
    return
  end
  -- Only now is it known that the units fit. Nothing that could fail comes before the line is written.
  local ends, flag = clock + life, rule.gives_back and '\1' or '\0'
  local over = ends + LATE
  local due = rule.gives_back and ends or over
  if due < first then
    first = due
  end
  if over > last then
    last = over
  end
  call('SET', keys[2], char(TAG_HOLDS, bytes_of(first)) .. pack_time(last) .. lines
    .. id .. flag .. pack_time(clock) .. pack_time(ends) .. pack_time(units), expiry(last))
  return told
end

-- The same for a settlement with no more than was held.
local function settle_plainly(keys, rule, used, id)
  if id == NO_HOLD or not rule.plain_give then
    return
  end
  local raw = sound_holds(keys[2])
  if not raw or raw == '' then
    return
  end
  local from = find(raw, id, HOLDS_HEAD + 1, true)
  if not from or (from - HOLDS_HEAD - 1) % HOLD_BYTES > 0 then
    return
  end
  local charged, _, units = hold_in(raw, from)
  if units == 0 or used > units then
    return
  end
  -- Here, too, the line goes last.
  local given, free, reset = rule.plain_give(keys[1], rule, charged, units, units - used)
  if not given then
    return
  end
  if #raw == HOLDS_HEAD + HOLD_BYTES then
    call('DEL', keys[2])
  else
    call('SET', keys[2], sub(raw, 1, from - 1) .. sub(raw, from + HOLD_BYTES), 'KEEPTTL')
  end
  return SETTLED .. pack_time(free) .. pack_time(reset) .. NO_OFFSET .. pack_time(given) .. pack_time(clock)
end
