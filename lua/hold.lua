-- Holds: units charged for work whose cost is known only when it is over. A second key in the same slot has a line
-- for each open hold of the first key:
--
--   tag 8, first (7 bytes), last (7): when the first line is due, and when all lines are over; then,
--   for each hold: id (8), whether it is given back at its end (1), charged (7), ends (7),
--   units (7)
--
-- The lines that were read are kept with the key's state, and are written before it. So neighboring entries of one
-- key read and write them once. A single entry of the common kind is decided straight through.
--
-- All times are the key's own. The first key's state does not depend on the second: held units are charged there
-- like any cost. The line says how much to give back, and its absence says that this was done. So a settlement
-- takes effect once, however often it is sent (law 3).
--
-- An entry about one hold writes a long value in place: the line of a hold that is settled becomes free, and a hold that
-- is opened takes the place of a free line. Other entries write the value without its free lines.
--
-- A line stays for LATE after its hold's end, so that a settlement may come as late as that. If the hold was given back
-- meanwhile, the line holds 0 units, and a settlement charges all that the holder has used in the end.
--
-- Part of the decision script; numbers.lua lists the parts in their order.
--
--   takes  numbers; of state.lua expiry, expire, decimal, find_record, TAG_HOLDS, LONGEST_WINDOW, ANSWER_CHARGED_MORE
--   gives  for frame.lua: EACH_BYTES, NO_HOLD; hold, extend, take_hold, take_lines,
--          read_holds, write_holds, forget_holds, end_holds, is_due, room, until_room, release,
--          charge_at, charge_used; hold_plainly, settle_plainly

local HOLDS_HEAD, HOLD_BYTES = 15, 30
local MAX_HOLDS = 1000 -- lines of a key
local LATE = 600000000 -- µs that a settlement may come after the hold's end
local LONGEST_HOLD = 86400000000 -- µs
local MAX_KEPT = LONGEST_WINDOW + LATE -- µs, the longest life of a line
local NO_HOLD = '\0\0\0\0\0\0\0\0' -- the id that settles what was not held before
local FREE_ID = '\255\255\255\255\255\255\255\255' -- the id in a free line, all of whose bytes are 255
local EACH_BYTES = 15 -- what a HOLD or SETTLE with a count has for each hold: id (8) and units (7)

-- Whether some hold is due by the key's own time, as far as the head tells.
local function is_due(e, s)
  if s.holds then
    return s.first <= s.now
  end
  local head = read('GETRANGE', e.holds, '0', decimal(HOLDS_HEAD - 1))
  return type(head) == 'string' and #head == HOLDS_HEAD and unpack_time(head, 2) <= s.now
end

-- Returns a text without its free lines. Its lines begin at position at.
local function without_free(text, at)
  local kept, n, start = {}, 0, 1
  local from = find_record(text, FREE_ID, at, HOLD_BYTES)
  while from do
    n = n + 1
    kept[n], start = sub(text, start, from - 1), from + HOLD_BYTES
    from = find_record(text, FREE_ID, start, HOLD_BYTES)
  end
  kept[n + 1] = sub(text, start)
  return concat(kept)
end

-- Reads the holds of the entry's key. Returns false if the value is not ours to read, or is damaged.
local function read_holds(e, s)
  if s.holds then
    return true
  end
  local raw = read('GET', e.holds)
  if not raw then
    s.holds, s.first, s.last, s.lines = e.holds, LATEST, 0, ''
    return true
  end
  if type(raw) == 'table' or byte(raw, 1, 1) ~= TAG_HOLDS or #raw < HOLDS_HEAD or #raw > HOLDS_HEAD + MAX_HOLDS * HOLD_BYTES
    or (#raw - HOLDS_HEAD) % HOLD_BYTES > 0 then
    return false
  end
  local first, last = unpack_time(raw, 2), unpack_time(raw, 9)
  if first > LATEST or last > LATEST then
    return false
  end
  s.holds, s.first, s.last, s.lines = e.holds, first, last, without_free(sub(raw, HOLDS_HEAD + 1), 1)
  return true
end

-- Forgets the holds that were read, because the next entry has another key.
local function forget_holds(s)
  s.holds, s.holds_changed = nil, false
end

-- Writes the holds. If more entries of the same key follow, an empty list of holds is deleted only after them:
-- while its slot moves, a Cluster's node refuses commands about a key that it does not have.
local function write_holds(s, more)
  s.holds_changed = more and s.lines == ''
  if s.lines == '' and not more then
    call('DEL', s.holds)
  else
    -- The expiry is no later than a line can matter, even if the clock has stepped back.
    local last = math.max(s.now, math.min(s.last, s.now + MAX_KEPT))
    call('SET', s.holds, char(TAG_HOLDS) .. pack_time(s.first) .. pack_time(last) .. s.lines, expiry(last - s.offset))
  end
end

-- The hold whose line begins at a position of a text: when it was charged, when it ends, and its units. Numbers in
-- a damaged line are cut to what can be written again.
local function hold_in(text, from)
  local charged, ends, units = unpack_time(text, from + 9), unpack_time(text, from + 16), unpack_time(text, from + 23)
  return math.min(charged, LATEST), math.min(ends, LATEST), math.min(units, MAX_UNITS)
end

-- Replaces the line that begins at a position by another line, or by nothing.
local function replace_line(s, from, line)
  s.lines, s.holds_changed = sub(s.lines, 1, from - 1) .. line .. sub(s.lines, from + HOLD_BYTES), true
end

-- When the line of a hold is over. That of a hold to be given back stays until its units cannot count any more,
-- because the decision that gives them back may come as late as that: nobody may have asked about the key before.
local function over_at(rule, gives_back, charged, ends)
  if not gives_back then
    return ends + LATE
  end
  local counts = rule.window > 0 and rule.window or 2682000000000 -- µs; a calendar's: 31 days and an hour
  if rule.burst and rule.burst > rule.quota then -- under GCRA, a larger burst takes longer to pay off
    counts = math.min(LONGEST_WINDOW, math.ceil(counts * (rule.burst / rule.quota)) + 1)
  end
  return math.max(ends + LATE, charged + counts)
end

-- Returns the line of a hold, and makes sure that the holds are looked at when it is due.
local function line_of(s, rule, id, gives_back, charged, ends, units)
  s.first = math.min(s.first, gives_back and ends or ends + LATE)
  s.last = math.max(s.last, over_at(rule, gives_back, charged, ends))
  return id .. (gives_back and '\1' or '\0') .. pack_time(charged) .. pack_time(ends) .. pack_time(units)
end

-- Ends the holds that are due. Returns, for the holds to be given back, when they were charged, and their units;
-- nothing if there are none. If there is no room for one more hold, lines that are kept only for late settlements,
-- and lines of another clock, are removed, too.
local function end_holds(s, rule, full)
  if s.first > s.now and not full then
    return
  end
  local stamps, units = {}, {}
  local due, before, kept, n = s.first <= s.now, s.lines, {}, 0
  s.first, s.last = LATEST, 0
  for from = 1, #before, HOLD_BYTES do
    local id, gives_back = sub(before, from, from + 7), byte(before, from + 8) == 1
    local charged, ends, held = hold_in(before, from)
    if gives_back and ends <= s.now then
      if held > 0 then
        stamps[#stamps + 1], units[#units + 1] = charged, held
      end
      gives_back, ends, held = false, s.now, 0
    end
    -- A hold charged in the future is from before the clock stepped back, and the key's own clock was lost with its
    -- state. So its units do not count any more. It would otherwise take the place of another one for as long as the step.
    local lost = full and charged > s.now
    if not lost and (ends > s.now or (ends + LATE > s.now and not full)) then
      n = n + 1
      kept[n] = line_of(s, rule, id, gives_back, charged, ends, held)
    end
  end
  s.lines = concat(kept)
  s.holds_changed = s.holds_changed or due or s.lines ~= before
  if #stamps > 0 then
    return stamps, units
  end
end

-- The number of further holds that can be opened.
local function room(s)
  return MAX_HOLDS - #s.lines / HOLD_BYTES
end

-- µs until a hold ends, which makes room for another one. There is none that has ended: see end_holds.
local function until_room(s)
  local first = LATEST
  for from = 1, #s.lines, HOLD_BYTES do
    local _, ends = hold_in(s.lines, from)
    first = math.min(first, ends)
  end
  return math.min(first - s.now, LONGEST_HOLD)
end

-- The lines of n holds. The packed argument has the id and units of each, from a position on. They share the rest:
-- the flag, and when they were charged and end.
local function lines_of(from, n, common)
  local each, line = '(........)(.......)', '%1' .. gsub(common, '%%', '%%%%') .. '%2'
  return (gsub(sub(packed, from, from + n * EACH_BYTES - 1), each, line))
end

-- Charges units for the entry's hold, or for all of its holds together, in memory.
local function hold(e, s, rule, units)
  local line = line_of(s, rule, e.id, rule.gives_back, s.now, s.now + e.life, units)
  if e.count > 1 then
    line = lines_of(e.each, e.count, sub(line, 9, 23))
  end
  s.lines, s.holds_changed = s.lines .. line, true
  rule.algorithm.take(s, rule, units)
  s.newest, s.charged, s.changed = s.now, true, true
end

-- Makes the entry's hold last for its life from now on, unless it lasts longer anyway. Returns 1 if the hold
-- exists, otherwise 0, and sets e.result to how long it lasts.
local function extend(e, s, rule)
  local from = find_record(s.lines, e.id, 1, HOLD_BYTES)
  if not from then
    return 0
  end
  local charged, ends, units = hold_in(s.lines, from)
  if units == 0 then -- it was given back
    return 0
  end
  ends = math.max(ends, s.now + e.life)
  e.result = math.min(ends - s.now, LONGEST_HOLD)
  replace_line(s, from, line_of(s, rule, e.id, rule.gives_back, charged, ends, units))
  return 1
end

-- Removes the entry's hold. Returns when it was charged, and its units; nothing if it does not exist.
local function take_hold(e, s)
  if e.id == NO_HOLD then
    return s.now, 0
  end
  local from = find_record(s.lines, e.id, 1, HOLD_BYTES)
  if not from then
    return
  end
  local charged, _, units = hold_in(s.lines, from)
  replace_line(s, from, '')
  return charged, units
end

-- Removes from a text the lines of the holds that a SETTLE with a count settles. In the text the lines follow a
-- head of the given number of bytes. The packed argument has the id and the used units of each hold, from position
-- at on. Returns the rest of the text; how many of the holds existed; what they give back, as a table for release,
-- or false if they give back nothing; how many units to charge in addition; and the outcome that a SETTLE of each
-- hold would have had.
local function take_lines(text, head, at, count)
  local expected, taken, n, seen = head + 1, {}, 0, nil
  local same, stamp_text, units -- of the line before: its text without the id, its stamp, and its units
  local stamps, sums, lasts, groups = {}, {}, {}, 0
  local each, held, given = {}, {}, 0
  local sum, more, outcomes = 0, 0, nil
  for i = 1, count do
    local id = sub(packed, at, at + 7)
    -- Holds are mostly settled in the order of their lines.
    local from = find(text, id, expected, true)
    if from ~= expected then
      from = from and find_record(text, id, expected, HOLD_BYTES) or find_record(text, id, head + 1, HOLD_BYTES)
      if from and from < expected then
        if not seen then
          seen = {}
          for k = 1, n do
            seen[taken[k]] = true
          end
        end
        if seen[from] then
          from = nil
        end
      end
    end
    if from then
      n = n + 1
      taken[n] = from
      if seen then
        seen[from] = true
      end
      if from >= expected then
        expected = from + HOLD_BYTES
      end
      local line = sub(text, from + 9, from + HOLD_BYTES - 1)
      if line ~= same then
        local a, b, c, d, f, g, h = byte(line, 15, 21)
        same, units = line, (((((a * 256 + b) * 256 + c) * 256 + d) * 256 + f) * 256 + g) * 256 + h
        if units > MAX_UNITS then
          units = MAX_UNITS
        end
        line = sub(line, 1, 7)
        if line ~= stamp_text then -- holds that were opened together have the same stamp
          if sum > 0 then
            sums[groups], lasts[groups] = sum, given
            sum = 0
          elseif groups > 0 then
            groups = groups - 1
          end
          stamp_text, groups = line, groups + 1
          stamps[groups] = math.min(unpack_time(line, 1), LATEST)
        end
      end
      local a, b, c, d, f, g, h = byte(packed, at + 8, at + 14)
      local used = (((((a * 256 + b) * 256 + c) * 256 + d) * 256 + f) * 256 + g) * 256 + h
      local back = units - used
      if back > 0 then
        given, sum = given + 1, sum + back
        each[given], held[given] = back, units
      else
        more = more - back
        if units == 0 then
          outcomes = outcomes or {}
          outcomes[i] = '\2'
        end
      end
    else
      outcomes = outcomes or {}
      outcomes[i] = '\0'
    end
    at = at + EACH_BYTES
  end
  if sum > 0 then
    sums[groups], lasts[groups] = sum, given
  else
    stamps[groups] = nil
  end

  if seen then
    table.sort(taken)
  end
  local kept, k, start = {}, 0, 1
  for i = 1, n do
    local from = taken[i]
    if from > start then
      k = k + 1
      kept[k] = sub(text, start, from - 1)
    end
    start = from + HOLD_BYTES
  end
  kept[k + 1] = sub(text, start)
  if outcomes then
    for i = 1, count do
      outcomes[i] = outcomes[i] or '\1'
    end
  end
  local alike = given > 0 and { stamps = stamps, units = sums, last = lasts, each = each, held = held }
  return concat(kept), n, alike, more, outcomes and concat(outcomes) or rep('\1', count)
end

-- Gives back units[i] units of the charge made at stamps[i], in memory, as far as they still count: exactly these
-- units, as if they had never been charged. Returns how many.
--
-- Units given back by charges of the same time may come as one sum. An algorithm that needs the parts of the sum
-- finds them in alike. The parts of the i-th sum follow those of the sum before, and end at last[i]: each[k] is
-- what charge k gives back, and held[k] is how many units it had.
local function release(s, rule, stamps, charged, units, alike)
  if rule.algorithm.release then
    return rule.algorithm.release(s, rule, stamps, charged, units, alike)
  end
  local given = 0
  for i = 1, #stamps do
    if stamps[i] <= s.newest then -- otherwise the key no longer knows of the charge
      given = given + rule.algorithm.give(s, rule, stamps[i], units[i], units[i])
    end
  end
  return given
end

-- Charges units that were already used, at the given stamps, in memory, whether or not they fit. Returns how many
-- count. Units that were given back in memory before do not make this a charge.
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

-- The same for units used now. Those that fit are charged like any others.
local function charge_used(s, rule, units)
  if units <= s.free then
    rule.algorithm.take(s, rule, units)
    s.newest, s.charged, s.changed = s.now, true, true
    return units
  end
  return charge_at(s, rule, rule.algorithm.charge, { s.now }, { units })
end

local hold_plainly, settle_plainly
do
  -- How the answers begin to a settlement that was made, and to several settlements, up to the number of those
  -- that were made: see frame.lua.
  local SETTLED, SETTLED_SEVERAL = '\0\5\0\0\0\0\0\0\4', '\0\5'

  -- From this length on, a value is written in place. Making a string takes Redis's Lua eight instructions for each
  -- byte, and a command takes 5,000, so it costs less to write a shorter value anew.
  local LONG = HOLDS_HEAD + 20 * HOLD_BYTES

  -- The holds of a key, as text, if the value is ours and sound; otherwise nothing. If the entry is about one hold, also
  -- whether the value is long: it may then have free lines.
  local function sound_holds(key, count)
    local raw = pcall('GET', key)
    if not raw then
      return ''
    end
    if type(raw) == 'string' and byte(raw, 1, 1) == TAG_HOLDS and #raw > HOLDS_HEAD
      and #raw <= HOLDS_HEAD + MAX_HOLDS * HOLD_BYTES and (#raw - HOLDS_HEAD) % HOLD_BYTES == 0 then
      if #raw < LONG then
        return raw
      elseif count == 1 then
        return raw, true
      end
      return without_free(raw, HOLDS_HEAD + 1)
    end
  end

  -- Most holds are for units that are free, of a key that has no due hold. These are decided and written here,
  -- straight through: see "plain" in state.lua. For a HOLD with a count, the packed argument lists its holds from
  -- position each on. emptied means that the entry before has settled all holds of the key. Returns the answer, or nothing
  -- if the case is not as simple: then nothing was decided.
  function hold_plainly(key, holds, rule, units, id, life, each, count, emptied)
    local raw, long = '', false
    if not emptied then
      raw, long = sound_holds(holds, count)
    end
    local at = long and find_record(raw, FREE_ID, HOLDS_HEAD + 1, HOLD_BYTES)
    if not raw or (not at and #raw + count * HOLD_BYTES > HOLDS_HEAD + MAX_HOLDS * HOLD_BYTES) then
      return
    end
    local first, last = LATEST, 0
    if raw ~= '' then
      first, last = unpack_time(raw, 2), unpack_time(raw, 9)
      if first <= clock or first > LATEST or last > clock + MAX_KEPT then
        return
      end
    end
    local encoded = rule.straight(key, units, rule)
    if not encoded then
      return
    end
    -- Only now is it known that the units fit. Nothing may fail from here until the line is written.
    local ends, flag = clock + life, rule.gives_back and '\1' or '\0'
    local over = over_at(rule, rule.gives_back, clock, ends)
    local due = rule.gives_back and ends or over
    if due < first then
      first = due
    end
    if over > last then
      last = over
    end
    local head, common = char(TAG_HOLDS, bytes_of(first)) .. pack_time(last), flag .. pack_time(clock) .. pack_time(ends)
    local lines = count == 1 and id .. common .. pack_time(units) or lines_of(each, count, common)
    if at then
      put('SETRANGE', holds, '0', head)
      expire(holds, last)
      put('SETRANGE', holds, decimal(at - 1), lines)
    else -- also if the value is long: Redis allocates twice as much for one that grows in place
      put('SET', holds, head .. sub(raw, HOLDS_HEAD + 1) .. lines, expiry(last))
    end
    return encoded
  end

  -- The same for settlements. One of more than was held is decided here if it is alone and what is charged in addition
  -- fits. For a SETTLE with a count, the packed argument lists the holds to settle from position each on. If more
  -- entries of the same key follow in the batch, an empty list of holds is not deleted yet, see write_holds; the second
  -- result is then true.
  function settle_plainly(key, holds, rule, used, id, each, count, more)
    if id == NO_HOLD or id == FREE_ID or not rule.plain_give then
      return
    end
    local raw, long = sound_holds(holds, count)
    if not raw or raw == '' then
      return
    end
    local begin, outcomes, rest, freed, given, free, reset, answer = SETTLED, '', nil, nil, nil, nil, nil, nil
    if count == 1 then
      local from = find(raw, id, HOLDS_HEAD + 1, true)
      if not from or (from - HOLDS_HEAD - 1) % HOLD_BYTES > 0 then
        return
      end
      local charged, _, units = hold_in(raw, from)
      if units == 0 then
        return
      end
      if long then
        local other = find(raw, '[^\255]', HOLDS_HEAD + 1) -- in the first line that is not free
        if other >= from then
          other = find(raw, '[^\255]', from + HOLD_BYTES)
        end
        freed = other and 2 * other < #raw and from -- otherwise most lines are free
      end
      rest = raw
      if not freed then
        rest = sub(raw, 1, from - 1) .. sub(raw, from + HOLD_BYTES)
        if long then
          rest = without_free(rest, HOLDS_HEAD + 1)
        end
      end
      if used > units then
        answer = rule.straight(key, used - units, rule)
        if answer then
          given, answer = used - units, char(ANSWER_CHARGED_MORE) .. pack_time(used - units) .. answer
        end
      else
        given, free, reset = rule.plain_give(key, rule, charged, units, units - used)
      end
    else
      local found, alike, more_used
      rest, found, alike, more_used, outcomes = take_lines(raw, HOLDS_HEAD, each, count)
      if not alike or more_used > 0 then
        return
      end
      begin = SETTLED_SEVERAL .. pack_time(found + OUTCOME_OFFSET)
      given, free, reset = rule.plain_give(key, rule, nil, nil, nil, alike)
    end
    if not given then
      return
    end
    -- Here, too, the line is written last.
    local emptied = not freed and #rest == HOLDS_HEAD
    if freed then
      call('SETRANGE', holds, decimal(freed - 1), rep('\255', HOLD_BYTES))
    elseif emptied and not more then
      call('DEL', holds)
    else
      call('SET', holds, rest, 'KEEPTTL')
    end
    answer = answer or begin .. pack_time(free) .. pack_time(reset) .. NO_OFFSET .. pack_time(given) .. outcomes
    return answer, emptied and more
  end
end
