-- The frame: runs a batch of entries, one by one in order, exactly as if each had
-- come alone; entries of one group are charged all or none (law 9).
--
--   KEYS     the entries' keys; behind that of a LEASE one more, of what is out on lease;
--            behind all of them, the last one's first, the keys of CHARGEs' markers
--   ARGV[1]  all the rest, packed: unsigned big-endian integers of the given bytes
--
--     clock (7)      µs since the Unix epoch; 0 for Redis's own
--     base (7)       earliest not-after of the entries, µs on Redis's clock
--     rules (2)      how many, and for each
--       algorithm (1), quota (7), window in µs (7), and dials (28): see the algorithms
--     entries, up to the end, for each
--       form (1)     the operation, plus 8 if the key is that of the entry before, 16 if
--                    it has a group, 32 if a long cost, 64 if a count
--       rule (2)     counted from 1
--       not after (2)  64 µs after the base each; 65535 for never
--       cost (1)     of a CHARGE, how many pairs it has
--       group (2), long cost (7) in place of the short one, count (3): where the form
--                    says so. A count of n is n entries of that cost, one after another
--       charged (7), stamp (7): of a refund, the cost and the stamp of the charge
--       id (8), over (8), most (7), reserve (7), life in µs (4): of a LEASE, see lease.lua;
--                    its cost is how many units are wanted
--       sequence (7), and pairs: of a CHARGE, units (6) and their age in µs (7), the
--                    youngest first
--
--   reply clock, then for each entry
--     outcome        of TAKE and PEEK: how many of the count fitted; of TAKE_UP_TO,
--                    REFUND, CHARGE and LEASE: the units; or EXPIRED, UNREADABLE: nothing
--                    follows these; or HELD_BACK
--     units free, reset after (µs), offset: what the key's own time, by which a refund
--                    finds the charge, is ahead of the clock
--     retry after, next after (µs; when the cost, and when a single unit, will fit): if
--                    the outcome is less than the count, and a TAKE_UP_TO's nothing
--     lasts (µs)     of a LEASE: how long it may be spent

--
-- A CHARGE brings units that an instance has granted without asking here, each with its
-- age. Whether they fit is not asked: they have been used. Its marker makes it happen
-- once (law 3): a string with the sequence of that instance's last CHARGE to the key.
-- One that is not above it was charged already; a repeat, after a lost reply, has the
-- same number.

local TAKE, TAKE_UP_TO, PEEK, REFUND, FORGET, CHARGE, LEASE = 1, 2, 3, 4, 5, 6, 7
local EXPIRED, UNREADABLE, HELD_BACK = -1, -2, -3
local RULE, PAIR = 43, 13 -- bytes

-- How long markers live: a minute longer than the state that the charge leaves, after
-- which all its units have left and a repeat would charge none. But ten minutes at most,
-- within which repeats must come, lest an outage of hours fill Redis with markers.
local MARKER_LONGER, MARKER_LONGEST = 60000, 600000 -- ms

-- The rules last used, by their packed form. A function of a library (see lua.go)
-- keeps them from one run to the next.
local known_rules, rules_known = {}, 0
local MOST_RULES = 1000

local function read_rule()
  local text = sub(packed, at, at + RULE - 1)
  local rule = known_rules[text]
  if rule == nil then
    local code, quota, window = next_number(1), next_number(7), next_number(7)
    rule = algorithm(code).rule(quota, window, at)
    at = at - 15
    if rules_known == MOST_RULES then
      known_rules, rules_known = {}, 0
    end
    known_rules[text], rules_known = rule, rules_known + 1
  end
  at = at + RULE
  return rule
end

-- What one run works on.
local asked_keys
local base -- of the not-afters
local rules
local keys, markers -- read so far
local key -- of the entry before
local reply, replies

local function read_entry(e)
  local form, rule, rule_low, after, after_low, cost = byte(packed, at, at + 5)
  at = at + 6
  e.cost, e.count, e.group = cost, 1, 0
  after = after * 256 + after_low
  e.late = after < 65535 and clock > base + after * 64
  e.rule = rules[rule * 256 + rule_low]
  if form == TAKE then
    keys = keys + 1
    key = asked_keys[keys]
    e.operation = TAKE
  else
    local flags = form - form % 8
    e.operation = form % 8
    if flags % 16 == 0 then
      keys = keys + 1
      key = asked_keys[keys]
    end
    if flags % 32 >= 16 then
      e.group = next_number(2)
    end
    if flags % 64 >= 32 then
      e.cost = next_number(7)
    end
    if flags >= 64 then
      e.count = next_number(3)
    end
    if e.operation == REFUND then
      e.charged, e.stamp = next_number(7), next_number(7)
    elseif e.operation == LEASE then
      keys = keys + 1
      e.leases = asked_keys[keys]
      e.id, e.over = sub(packed, at, at + 7), sub(packed, at + 8, at + 15)
      at = at + 16
      e.most, e.reserve, e.life = next_number(7), next_number(7), next_number(4)
      e.lasts = 0
    elseif e.operation == CHARGE then
      e.sequence, e.pairs = next_number(7), at
      e.marker = asked_keys[#asked_keys - markers]
      markers, at = markers + 1, at + e.cost * PAIR
    end
  end
  e.key = key
  return e
end

local function write(s)
  if not s.changed then
    return
  end
  s.changed = false
  if not s.charged and s.rule.algorithm.empty(s) then
    call('DEL', s.key)
  else
    s.rule.algorithm.write(s, s.rule)
  end
end

-- Reads a key under a rule into s. Returns false if it is not ours to read.
local function look_at(s, key, rule)
  if open(s, key) and (s.tag == 0 or code_of[s.tag]) then
    s.rule = rule
    rule.algorithm.look(s, rule)
    return true
  end
  s.key = ''
  return false
end

-- Reads what number a CHARGE's marker has, 0 if there is none. Returns false if it is
-- not ours to read.
local function read_marker(e)
  local text = pcall('GET', e.marker)
  if type(text) == 'table' then
    return false
  end
  e.known = text and tonumber(text) or 0
  return not text or e.known > 0
end

-- Charges the units of a CHARGE, unless they were before; returns how many.
local function charge_past(e, s, rule)
  if e.known >= e.sequence then
    return 0
  end
  local stamps, units, from = {}, {}, e.pairs
  for i = 1, e.cost do
    units[i] = unpack_int(packed, from, 6)
    stamps[i] = s.now - unpack_time(packed, from + 6)
    from = from + PAIR
  end
  local charged = rule.algorithm.charge(s, rule, stamps, units)
  if s.changed then
    s.newest, s.charged = s.now, true
    write(s)
    look_at(s, e.key, rule)
  end
  local life = MARKER_LONGEST
  if not virtual then
    life = math.min(life, MARKER_LONGER + divide_up(rule.algorithm.reset(s, rule), 1000))
  end
  call('SET', e.marker, decimal(e.sequence), 'PX', decimal(life))
  return charged
end

-- Finds how many of the entry's count fit (for a TAKE_UP_TO: units), into e.fits.
-- Neighbours with the same key and rule share a state: what they take is taken in
-- memory, and written when another key comes.
local function look(e, s)
  if e.late then
    e.fits = EXPIRED -- whoever asked has given up: a charge now would be late (law 4)
    return
  end
  -- A refund finds its charge in what is stored, and units of the past their place.
  if s.key ~= e.key or s.rule ~= e.rule or e.operation == REFUND or e.operation == CHARGE then
    write(s)
    if not look_at(s, e.key, e.rule) then
      e.fits = UNREADABLE
      return
    end
  end
  local free, cost = s.free, e.cost
  if e.operation == CHARGE then
    e.fits = read_marker(e) and 1 or UNREADABLE
  elseif e.operation == TAKE_UP_TO then
    e.fits = math.min(cost, free)
  elseif e.operation > PEEK then
    e.fits = 1
  elseif cost > free then
    e.fits = 0
  elseif e.count == 1 then
    e.fits = 1
  else
    e.fits = math.min(e.count, floor(free / cost))
  end
end

-- Carries out what look has found possible, and answers.
local function settle(e, s, charge)
  local outcome, operation, rule = e.fits, e.operation, e.rule
  if outcome < 0 then
    replies = replies + 1
    reply[replies] = outcome
    return
  elseif outcome > 0 and not charge then
    outcome = HELD_BACK
  elseif operation <= TAKE_UP_TO then
    if outcome > 0 then
      rule.algorithm.take(s, rule, operation == TAKE and outcome * e.cost or outcome)
      s.newest, s.charged, s.changed = s.now, true, true
    end
  elseif operation == REFUND then
    outcome = 0
    -- A charge younger than the newest is one that the key no longer knows.
    if e.stamp <= s.newest then
      outcome = rule.algorithm.give(s, rule, e.stamp, e.charged, e.cost)
    end
    write(s)
    look_at(s, e.key, rule)
  elseif operation == FORGET then
    call('DEL', e.key)
    look_at(s, e.key, rule)
  elseif operation == LEASE then
    outcome = lend(e, s, rule)
  elseif operation == CHARGE then
    outcome = charge_past(e, s, rule)
  end
  reply[replies + 1] = outcome
  reply[replies + 2] = s.free
  reply[replies + 3] = rule.algorithm.reset(s, rule)
  reply[replies + 4] = s.offset
  replies = replies + 4
  if operation == LEASE then
    replies = replies + 1
    reply[replies] = e.lasts
    return
  end
  local wanted = operation == TAKE_UP_TO and 1 or e.count
  if outcome >= 0 and outcome < wanted and operation ~= REFUND and operation ~= CHARGE then
    local cost = operation == TAKE_UP_TO and 1 or e.cost
    local retry_after = rule.algorithm.wait(s, rule, cost)
    local next_after = 0
    if s.free == 0 then
      next_after = cost == 1 and retry_after or rule.algorithm.wait(s, rule, 1)
    end
    reply[replies + 1] = retry_after
    reply[replies + 2] = next_after
    replies = replies + 2
  end
end

-- Runs a group that begins with entry e; returns the entry behind it, if any.
local function run_group(e)
  local group, states, behind, charge = {}, {}, nil, true
  while true do
    local s = new_state()
    look(e, s)
    charge = charge and e.fits > 0
    group[#group + 1] = e
    states[#group] = s
    if at > #packed then
      break
    end
    local mate = read_entry({})
    if mate.group ~= e.group then
      behind = mate
      break
    end
    e = mate
  end
  for i = 1, #group do
    settle(group[i], states[i], charge)
    write(states[i])
  end
  return behind
end

-- Decides the entry at hand if it is a plain one: a TAKE, in time, without neighbours of its
-- key, that its rule's plain function can decide. Returns whether it was.
local function decided_plainly(s)
  local form, rule, rule_low, after, after_low, cost, next_form = byte(packed, at, at + 6)
  if form ~= TAKE or (next_form and next_form % 16 >= 8) then
    return false
  end
  rule = rules[rule * 256 + rule_low]
  after = after * 256 + after_low
  if not rule.plain or (after < 65535 and clock > base + after * 64) then
    return false
  end
  if s.changed then
    write(s)
  end
  s.key = '' -- it may be the same key, under another rule
  local free, reset = rule.plain(asked_keys[keys + 1], cost, rule)
  if not free then
    return false
  end
  at, keys = at + 6, keys + 1
  key = asked_keys[keys]
  local n = replies
  reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = 1, free, reset, 0
  replies = n + 4
  return true
end

local state = new_state()
local entry = {
  operation = 0, rule = false, late = false, group = 0, cost = 0, count = 0, key = '', fits = 0,
}

local function decide(all_keys, asked)
  begin(asked[1])
  asked_keys, keys, markers = all_keys, 0, 0
  base, rules = next_number(7), {}
  for i = 1, next_number(2) do
    rules[i] = read_rule()
  end
  reply, replies = { clock }, 1
  local s = state
  s.key, s.changed = '', false -- an error may have ended the last run in the middle

  local e
  while e or at <= #packed do
    if e or not decided_plainly(s) then
      e = e or read_entry(entry)
      if e.group == 0 then
        look(e, s)
        settle(e, s, true)
        e = nil
      else
        write(s)
        s.key = '' -- the group may write it
        e = run_group(e)
      end
    end
  end
  write(s)
  return reply
end
