-- Concurrency limits: a record for each process that holds units. There is no window and there are no stamps: a
-- unit counts until it is given back, or until its process has sent nothing for so long that the process counts as
-- dead.
--
--   tag 10: header, total (7 bytes), first (7), last (7), then for each process: its id (8), until
--   when it counts (7), units (7)
--
-- total     the units of all records
-- first     no record ends before this time
-- last      all records have ended at this time
--
-- All times are the key's own. Thanks to the sums in front, a decision reads and writes one record, however many
-- processes hold units. Only once first has passed are all records looked at: those that have ended, or have no units,
-- are dropped. The processes renew theirs, so that happens less than twice in the life of a record. A record without
-- units is kept until then, because its process mostly acquires units again.
--
-- A record belongs to a process and not to a slot, so a renewal covers all units of the key at once. The rule names
-- the process, so each process has its own rules. The rule's window is how long a record lasts without renewal. The
-- value has its own Redis key (see remote.Rule), apart from the state of a rule with windows that has the same
-- name.
--
-- A record has the units that were granted to its process, less the units that the process gave back. As an answer
-- may be lost, the process may not know this number. It then sends the number of units it holds (see SLOTS in
-- frame.lua), as soon as nothing that it sent before can change the record any more.
--
-- Part of the decision script; numbers.lua lists the parts in their order.
--
--   takes  numbers; of state.lua make, header, expiry, expire, decimal, put, find_record, denial,
--          PREFIX, HEADER, LATEST, MAX_UNITS, TAG_SLOTS, CONCURRENCY
--   gives  make[CONCURRENCY], with one function beside those of state.lua: statement(s, rule, units),
--          which carries out a SLOTS; its rules have plain_renewal(key, _, rule), which answers one that
--          changes no number, and plain_exchange(key, given, cost, rule), which answers a REFUND and a
--          TAKE after it. AS_KNOWN

local HOLDER_BYTES = 22
-- The most processes that may hold units of one key, which bounds the value's length (law 7).
local MAX_HOLDERS = 1000
local LONGEST_SLOT = 600000000 -- the longest life of a record, in µs
local AS_KNOWN = 2 ^ 48 - 1 -- the units of a SLOTS that changes no number

make[CONCURRENCY] = function()
  local RECORDS = HEADER + 21 -- the records start after this byte

  local slots = { codes = { [TAG_SLOTS] = CONCURRENCY } }

  -- Parameters: the process's id (8 bytes).
  function slots.rule(quota, window, params)
    return {
      algorithm = slots, quota = quota, window = window, window_text = pack_time(window), holder = sub(packed, params, params + 7),
      plain = slots.plain, plain_refund = slots.plain_refund, plain_renewal = slots.plain_renewal,
      plain_exchange = slots.plain_exchange,
    }
  end

  -- Reports whether so many other processes hold units that this one can hold none.
  local function is_crowded(s)
    return not s.own_at and #s.raw == RECORDS + MAX_HOLDERS * HOLDER_BYTES
  end

  function slots.recount(s, rule)
    local free = rule.quota - s.total
    s.free = free > 0 and not is_crowded(s) and free or 0
  end

  -- Finds the process's own record in s.raw. If it is damaged, it counts as one without units.
  local function find_own(s, rule)
    local at = find_record(s.raw, rule.holder, RECORDS + 1, HOLDER_BYTES)
    s.own_at, s.own_till, s.own_units = at, 0, 0
    if at then
      local till, units = unpack_time(s.raw, at + 8), unpack_time(s.raw, at + 15)
      if till <= s.last and units <= s.total then
        s.own_till, s.own_units = till, units
      end
    end
  end

  -- The records are not checked. If they are damaged, decisions are wrong until they end, at s.last.
  function slots.read(s)
    if #s.raw == PREFIX then
      s.raw = read('GET', s.key)
    end
    local size = #s.raw - RECORDS
    if size <= 0 or size % HOLDER_BYTES > 0 or size > MAX_HOLDERS * HOLDER_BYTES then
      return false
    end
    s.total, s.first, s.last = unpack_time(s.raw, HEADER + 1), unpack_time(s.raw, HEADER + 8), unpack_time(s.raw, HEADER + 15)
    s.lasts = s.last
    return s.total >= 1 and s.total <= MAX_HOLDERS * MAX_UNITS and s.first <= s.last and s.last <= s.newest + LONGEST_SLOT
  end

  -- Drops the records that have ended or have no units, in memory.
  local function prune(s)
    local raw = s.raw
    local kept, n = { sub(raw, 1, RECORDS) }, 1
    s.total, s.first, s.lasts = 0, LATEST, 0
    for from = RECORDS + 1, #raw, HOLDER_BYTES do
      local till, units = unpack_time(raw, from + 8), unpack_time(raw, from + 15)
      if till > s.now and till <= s.last and units > 0 and units <= MAX_UNITS then -- this also drops what is damaged
        n = n + 1
        kept[n] = sub(raw, from, from + HOLDER_BYTES - 1)
        s.total, s.first = s.total + units, math.min(s.first, till)
      end
    end
    s.raw = concat(kept)
    if n == 1 then
      s.last = 0
    end
  end

  function slots.look(s, rule)
    if s.tag == 0 then
      s.total, s.first, s.last, s.own_at, s.own_till, s.own_units = 0, LATEST, 0, nil, 0, 0
    else
      find_own(s, rule)
      if s.first <= s.now or is_crowded(s) then
        prune(s)
        find_own(s, rule)
      end
    end
    slots.recount(s, rule)
  end

  -- Returns the time for which no unit comes back unless a process gives it back.
  function slots.wait(s)
    return s.total > 0 and s.first - s.now or 0
  end

  -- Sets the number of the process's units, and renews its record.
  local function hold(s, rule, units)
    local till, before = s.now + rule.window, s.own_units
    s.total, s.own_units = s.total - before + units, units
    if units > 0 then
      s.own_till = before > 0 and math.max(s.own_till, till) or till
      s.first, s.last = math.min(s.first, s.own_till), math.max(s.last, s.own_till)
    end
    slots.recount(s, rule)
  end

  function slots.take(s, rule, cost)
    hold(s, rule, s.own_units + cost)
  end

  function slots.give(s, _, _, _, units)
    units = math.min(units, s.own_units)
    if units > 0 then
      s.total, s.own_units, s.changed = s.total - units, s.own_units - units, true
    end
    return units
  end

  -- Carries out a SLOTS. Returns how many units the process was known to hold.
  function slots.statement(s, rule, units)
    local known = s.own_units
    if units == AS_KNOWN then
      units = known
    end
    units = math.min(units, MAX_UNITS)
    if (units > 0 or known > 0) and not is_crowded(s) then
      hold(s, rule, units)
      s.newest, s.charged, s.changed = s.now, true, true
    end
    return known
  end

  -- A concurrency limit has no charges of units that were granted elsewhere.
  function slots.charge()
    return 0
  end

  function slots.empty(s)
    return s.total == 0
  end

  -- Writes the front and the process's own record, which is at a position or has to come there. A short value is
  -- rewritten, and so is one that becomes longer: SETRANGE would make it take twice as many bytes. The key expires at
  -- "ends"; "lasts" is when it does so far, or 0 if records were dropped from what is stored.
  local function put_own(key, raw, front, at, own, ends, lasts)
    if #raw <= PREFIX or at > #raw or lasts == 0 then
      local value = front .. sub(raw, RECORDS + 1, at - 1) .. own .. sub(raw, at + HOLDER_BYTES)
      if ends == lasts then
        put('SET', key, value, 'KEEPTTL')
      else
        put('SET', key, value, expiry(ends))
      end
      return
    end
    put('SETRANGE', key, decimal(at - 1), own)
    put('SETRANGE', key, '0', front)
    if ends ~= lasts then
      expire(key, ends)
    end
  end

  function slots.write(s, rule)
    local own = rule.holder .. pack_time(s.own_till) .. pack_time(s.own_units)
    local front = header(TAG_SLOTS, s) .. pack_time(s.total) .. pack_time(s.first) .. pack_time(s.last)
    local lasts = s.lasts > 0 and s.lasts - s.offset or 0
    put_own(s.key, s.raw, front, s.own_at or #s.raw + 1, own, s.last - s.offset, lasts)
  end

  function slots.reset(s)
    return s.total > 0 and s.last - s.now or 0
  end

  -- Most requests are about a key that is new, or that has no offset and no record that has ended. These are decided on
  -- the fast path, with fewer calls of functions. This reads such a key. Returns its value, total, first and last, and of
  -- the process's own record the position, the end and the units; or nothing if the key is not as simple.
  local function read_plainly(key, rule)
    local raw, now = pcall('GET', key) or '', clock
    seen_key, seen = key, raw
    if raw == '' then
      return raw, 0, LATEST, 0, 1, 0, 0
    end
    local size = #raw - RECORDS
    if size <= 0 or size % HOLDER_BYTES > 0 or size > MAX_HOLDERS * HOLDER_BYTES then -- it may be no string
      return
    end
    local tag, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, t, u, v = byte(raw, 1, HEADER + 7)
    local newest = (((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g
    local total = (((((o * 256 + p) * 256 + q) * 256 + r) * 256 + t) * 256 + u) * 256 + v
    if tag ~= TAG_SLOTS or h + i + j + k + l + m + n > 0 or newest > now or total < 1 or total > MAX_HOLDERS * MAX_UNITS then
      return
    end
    a, b, c, d, e, f, g, h, i, j, k, l, m, n = byte(raw, HEADER + 8, RECORDS)
    local first = (((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g
    local last = (((((h * 256 + i) * 256 + j) * 256 + k) * 256 + l) * 256 + m) * 256 + n
    if first <= now or first > last or last > newest + LONGEST_SLOT then
      return
    end
    local at = find(raw, rule.holder, RECORDS + 1, true)
    if at then
      a, b, c, d, e, f, g, h, i, j, k, l, m, n = byte(raw, at + 8, at + HOLDER_BYTES - 1)
      if (at - RECORDS - 1) % HOLDER_BYTES == 0 then
        local till = (((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g
        local units = (((((h * 256 + i) * 256 + j) * 256 + k) * 256 + l) * 256 + m) * 256 + n
        if till <= last and units <= total then
          return raw, total, first, last, at, till, units
        end
      end
    elseif size < MAX_HOLDERS * HOLDER_BYTES then
      return raw, total, first, last, #raw + 1, 0, 0
    end
  end

  -- Writes a key that read_plainly has read, with new totals of its units and of the process's, whose record counts until
  -- till so far, or longer from now on. Returns when the key expires.
  local function renew(key, raw, total, first, last, at, till, units, rule)
    till = math.max(till, clock + rule.window)
    local text, ends = pack_time(till), last
    local front = header_of_now(TAG_SLOTS) .. pack_time(total) .. (till < first and text or sub(raw, HEADER + 8, HEADER + 14))
    if till > last then
      ends, front = till, front .. text
    else
      front = front .. sub(raw, HEADER + 15, RECORDS)
    end
    put_own(key, raw, front, at, rule.holder .. text .. pack_time(units), ends, last)
    seen_key = nil
    return ends
  end

  -- The answer to a TAKE that leaves so many units free, and a key that expires at "ends".
  local function allowed(free, ends, rule)
    return char(ANSWER_ALLOWED) .. pack_time(free) .. (ends == clock + rule.window and rule.window_text or pack_time(ends - clock))
  end

  -- The answer to a REFUND.
  local function refunded(given, total, last, rule)
    return '\0\4' .. pack_time(given + OUTCOME_OFFSET) .. pack_time(math.max(0, rule.quota - total)) .. pack_time(total > 0 and last - clock or 0) .. NO_OFFSET
  end

  function slots.plain(key, cost, rule, may_deny)
    local raw, total, first, last, at, till, units = read_plainly(key, rule)
    if not raw then
      return
    end
    local free = rule.quota - total
    if cost > free then
      local wait = first - clock
      return may_deny and total > 0 and denial(free, last - clock, wait, wait)
    end
    local ends = renew(key, raw, total + cost, first, last, at, units > 0 and till or 0, units + cost, rule)
    return allowed(free - cost, ends, rule)
  end

  -- The same for a renewal: a SLOTS that changes no number. A process that holds units of many keys sends many of these.
  function slots.plain_renewal(key, _, rule)
    local raw, total, first, last, at, till, units = read_plainly(key, rule)
    if not raw or units == 0 then
      return
    end
    local ends = renew(key, raw, total, first, last, at, till, units, rule)
    return '\0\4' .. pack_time(units + OUTCOME_OFFSET) .. pack_time(math.max(0, rule.quota - total)) .. pack_time(ends - clock) .. NO_OFFSET
  end

  -- The same for a REFUND: see plain_refund in state.lua.
  function slots.plain_refund(key, given, rule)
    local raw, total, _, last, at, _, units = read_plainly(key, rule)
    if not raw then
      return
    end
    if given > units then
      given = units
    end
    if given > 0 then
      total, units = total - given, units - given
      if total == 0 then
        call('DEL', key)
      else
        local front = sub(raw, 1, HEADER) .. pack_time(total) .. sub(raw, HEADER + 8, RECORDS)
        put_own(key, raw, front, at, sub(raw, at, at + 14) .. pack_time(units), last, last)
      end
    end
    seen_key = nil
    return refunded(given, total, last, rule)
  end

  -- The same for a REFUND and a TAKE that follows it, which the callers of a busy process often send together. The record is
  -- read and written once for both. If the TAKE does not fit, nothing is decided.
  function slots.plain_exchange(key, given, cost, rule)
    local raw, total, first, last, at, till, units = read_plainly(key, rule)
    if not raw then
      return
    end
    if given > units then
      given = units
    end
    total, units = total - given, units - given
    local free = rule.quota - total
    if cost > free then
      return
    end
    local answer = refunded(given, total, last, rule)
    if total == 0 then -- the REFUND alone would delete the key
      raw, first, last, at = '', LATEST, 0, 1
    end
    local ends = renew(key, raw, total + cost, first, last, at, units > 0 and till or 0, units + cost, rule)
    return answer .. allowed(free - cost, ends, rule)
  end

  return slots
end
