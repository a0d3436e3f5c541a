-- Concurrency limits: a record for each process that holds units. There is no window and there are no stamps: a
-- unit counts until it is given back, or until its process has sent nothing for so long that the process counts as
-- dead.
--
--   tag 9: header, then for each process: its id (8 bytes), until when it counts (7, the key's
--   own time), units (7)
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
--   takes  numbers; of state.lua make, header, expiry, PREFIX, HEADER, MAX_UNITS, TAG_SLOTS,
--          CONCURRENCY
--   gives  make[CONCURRENCY], with one function beside those of state.lua: statement(s, rule, units),
--          which carries out a SLOTS

local HOLDER_BYTES = 22
-- The most processes that may hold units of one key: each decision reads all records (law 7).
local MAX_HOLDERS = 1000
local LONGEST_SLOT = 600000000 -- the longest life of a record, in µs
local AS_KNOWN = 2 ^ 48 - 1 -- the units of a SLOTS that changes no number

make[CONCURRENCY] = function()
  local slots = { codes = { [TAG_SLOTS] = CONCURRENCY } }

  -- Parameters: the process's id (8 bytes).
  function slots.rule(quota, window, params)
    return { algorithm = slots, quota = quota, window = window, holder = sub(packed, params, params + 7) }
  end

  -- Sums up the records. If one more process would be too many, no units are free for a process without a record.
  local function count(s, rule)
    local held = 0
    s.own = false
    for i = 1, #s.holders do
      local record = s.holders[i]
      held = held + record.units
      if record.id == rule.holder then
        s.own = record
      end
    end
    s.free = math.max(0, rule.quota - held)
    if not s.own and #s.holders >= MAX_HOLDERS then
      s.free = 0
    end
  end

  slots.recount = count

  function slots.read(s)
    local raw = s.raw
    if #raw == PREFIX then
      raw = read('GET', s.key)
    end
    local size = #raw - HEADER
    if size <= 0 or size % HOLDER_BYTES > 0 or size > MAX_HOLDERS * HOLDER_BYTES then
      return false
    end
    local records, seen = {}, {}
    for from = HEADER + 1, #raw, HOLDER_BYTES do
      local record = { id = sub(raw, from, from + 7), till = unpack_time(raw, from + 8), units = unpack_time(raw, from + 15) }
      if seen[record.id] or record.units < 1 or record.units > MAX_UNITS or record.till > s.newest + LONGEST_SLOT then
        return false
      end
      seen[record.id] = true
      records[#records + 1] = record
    end
    s.holders = records
    return true
  end

  function slots.look(s, rule)
    local alive = {}
    if s.tag ~= 0 then
      for i = 1, #s.holders do
        if s.holders[i].till > s.now then
          alive[#alive + 1] = s.holders[i]
        end
      end
    end
    s.holders = alive
    count(s, rule)
  end

  -- Returns the time until units are free if no process renews its record.
  function slots.wait(s, rule, cost)
    local ends, held = {}, 0
    for i = 1, #s.holders do
      ends[i], held = s.holders[i], held + s.holders[i].units
    end
    table.sort(ends, function(a, b) return a.till < b.till end)
    local after = 0
    for i = 1, #ends do
      if rule.quota - held >= cost and (s.own or #ends - i + 1 < MAX_HOLDERS) then
        break
      end
      held, after = held - ends[i].units, ends[i].till - s.now
    end
    return after
  end

  -- Sets the number of the process's units, and renews its record.
  local function hold(s, rule, units)
    local till = s.now + rule.window
    if s.own and units > 0 then
      s.own.units, s.own.till = units, math.max(s.own.till, till)
    elseif units > 0 then
      s.holders[#s.holders + 1] = { id = rule.holder, till = till, units = units }
    else
      local others = {}
      for i = 1, #s.holders do
        if s.holders[i] ~= s.own then
          others[#others + 1] = s.holders[i]
        end
      end
      s.holders = others
    end
    count(s, rule)
  end

  function slots.take(s, rule, cost)
    hold(s, rule, cost + (s.own and s.own.units or 0))
  end

  function slots.give(s, rule, _, _, units)
    if not s.own then
      return 0
    end
    units = math.min(units, s.own.units)
    s.own.units, s.changed = s.own.units - units, true
    if s.own.units == 0 then
      hold(s, rule, 0)
    end
    return units
  end

  -- Carries out a SLOTS. Returns how many units the process was known to hold.
  function slots.statement(s, rule, units)
    local known = s.own and s.own.units or 0
    if units == AS_KNOWN then
      units = known
    end
    units = math.min(units, MAX_UNITS)
    if units > 0 or known > 0 then
      if units > 0 and not s.own and #s.holders >= MAX_HOLDERS then
        return known
      end
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
    return #s.holders == 0
  end

  local function last(s)
    local till = s.now
    for i = 1, #s.holders do
      till = math.max(till, s.holders[i].till)
    end
    return till
  end

  function slots.write(s)
    local text = { header(TAG_SLOTS, s) }
    for i = 1, #s.holders do
      local record = s.holders[i]
      text[i + 1] = record.id .. pack_time(record.till) .. pack_time(record.units)
    end
    call('SET', s.key, concat(text), expiry(last(s) - s.offset))
  end

  function slots.reset(s)
    return last(s) - s.now
  end

  return slots
end
