-- The frame: runs a batch of entries, one by one in order, exactly as if each had come alone. The entries of a
-- group are charged all or none (law 9).
--
-- Part of the decision script; numbers.lua lists the parts in their order.
--
--   takes  numbers; state.lua, the algorithms by algorithm(code); AS_KNOWN of concurrent.lua; lease.lua,
--          hold.lua
--   gives  decide(keys, arguments), which lua.go lets a script return or a library register
--
--   KEYS     the entries' keys. The key of a LEASE is followed by the key of its leases. The key of a
--            HOLD, SETTLE, EXTEND or FORGET, and of each entry of a rule that gives back, is followed
--            by the key of its holds, unless that was already given for the same key. At the end
--            are the keys of the CHARGEs' markers, the last CHARGE's first
--   ARGV[1]  all the rest, packed: unsigned big-endian integers of the given number of bytes
--
--     clock (7)      µs since the Unix epoch; 0 for Redis's own clock
--     base (7)       earliest not-after of the entries, µs on Redis's clock
--     rules (2)      the number of rules, and for each rule
--       algorithm (1), plus 128 if holds that end unsettled are given back; quota (7), window
--       in µs (7), and parameters (28): see the algorithms
--     entries, up to the end, for each
--       form (1)     the operation, plus 8 if the key is that of the entry before, 16 if the entry
--                    has a group, 32 if it has a long cost, 64 if it has a count. An operation
--                    from 8 on is written as the operation minus 8, plus 128
--       rule (2)     the rule's number, from 1
--       not after (2)  in units of 64 µs after the base; 65535 for never
--       cost (1)     for a CHARGE, its number of pairs; for a SLOTS, the units that the process
--                    holds, or AS_KNOWN
--       group (2), long cost (7) in place of the short one, count (3): if the form says so.
--                    A count of n means n entries of that cost, one after another; for a HOLD
--                    or SETTLE, n holds or settlements with their own costs
--       n (2), not after (2) of each: of TAKES, which stands for n TAKEs of one rule and cost, each
--                    of its own key. The not-after in front of them is the earliest
--       charged (7), stamp (7): of a REFUND, the cost and the stamp of the charge. A log undoes the
--                    charge if the cost is 0: it gives back the charge's own units
--       id (8), over (8), most (7), reserve (7), life in µs (4): of a LEASE, see lease.lua;
--                    its cost is the number of units wanted
--       id (8), life in µs (7): of a HOLD, HOLD_UP_TO, SETTLE or EXTEND, see hold.lua; the
--                    cost of a SETTLE is the number of units used
--       ids (8) and costs (7): of a HOLD or SETTLE with a count, for each hold including the first;
--                    the cost in front of them is the sum for a HOLD
--       sequence (7), and pairs: of a CHARGE. A pair is a number of units (6) and their age in
--                    µs (7); the youngest comes first
--
-- A single entry without a given clock has its rule as an argument of its own:
--
--   ARGV[1]  the rule
--   ARGV[2]  base (7), and the entry, whose rule number is 1
--
-- The reply is one string. It has an answer for each entry, or, for a HOLD with a count of which not all holds fit,
-- an answer for each of its holds. An answer is
--
--   0, the number of numbers that follow (1), and these numbers, 7 bytes each
--     outcome + 3    of TAKE, HOLD and PEEK: how many of the count fit. Of TAKE_UP_TO, HOLD_UP_TO,
--                    REFUND, CHARGE and LEASE: the number of units. Of SLOTS: the units that the
--                    process was known to hold. Of SETTLE and EXTEND: 1 if the hold exists, 2 if
--                    a SETTLE's hold had been given back, otherwise 0. Or EXPIRED or UNREADABLE,
--                    after which nothing follows; or HELD_BACK
--     units free, reset after (µs), offset: how far the key's own time, by which a refund
--                    finds the charge, is ahead of the clock
--     retry after, next after (µs; when the cost, and when a single unit, will fit): if
--                    the outcome is less than the count, or 0 for an operation "up to"
--     lasts (µs)     of a LEASE: how long it may be spent; of an EXTEND: until the hold ends.
--                    A SETTLE has here the units given back or charged; with a count, its
--                    numbers are followed by the outcome of each settlement (1)
--   or, for a TAKE or HOLD that was decided straight through (see "plain" in state.lua) and
--   allowed with all of its count,
--     255, units free (7), reset after (7)
--     or what was written: for GCRA the state, after a byte 254 if it has d-ths; for a fixed window
--     the state; for a log's ring the part before its slots
--   or, for a SETTLE that was decided straight through and used more than was held,
--     253, the units charged in addition (7), and an answer like the one to a TAKE of so many units
--
-- and at the end of the reply the clock (7). It is left out if there is one entry and its answer is what was
-- written: the clock is then the time of the newest charge.
--
-- A CHARGE counts units that an instance has granted without asking Redis, each with its age. It does not
-- check whether they fit: they have been used. Its marker, a string with the sequence of that instance's last
-- CHARGE to the key, makes it happen once (law 3). A sequence that is not above the marker's was charged
-- already: a CHARGE that is repeated after a lost reply has the same number.

local TAKE, TAKE_UP_TO, PEEK, REFUND, FORGET, CHARGE, LEASE, SLOTS = 0, 1, 2, 3, 4, 5, 6, 7
local HOLD, HOLD_UP_TO, SETTLE, EXTEND, TAKES = 8, 9, 10, 11, 12
local COUNTED_TAKE, LONG_TAKE, MANY_TAKES = TAKE + 64, TAKE + 32, TAKES + 120 -- forms: a TAKE with a count, with a long cost; TAKES

local EXPIRED, UNREADABLE, HELD_BACK = -1, -2, -3 -- OUTCOME_OFFSET keeps the packed outcomes from being negative
local RULE, PAIR = 43, 13 -- bytes
local NOT_AFTER_STEP, NO_NOT_AFTER = 64, 65535 -- µs; for never

-- The rules used last, by their packed form. A library's function (see lua.go) keeps them from one run to the next.
local known_rules = {}
local read_rule
do
  local rules_known, MAX_RULES = 0, 1000

  -- The largest cost that is decided straight through, unless an algorithm names another one. Times of up to 2^45 µs
  -- per unit then stay below 2^53 (law 10).
  local PLAIN_COST = 255

  function read_rule()
    local text = sub(packed, at, at + RULE - 1)
    local rule = known_rules[text]
    if rule == nil then
      local code, quota, window = next_number(1), next_number(7), next_number(7)
      rule = algorithm(code % 128).rule(quota, window, at)
      at = at - 15
      rule.straight, rule.most_plain = rule.plain, rule.most_plain or PLAIN_COST
      if code >= 128 then
        rule.gives_back, rule.plain = true, nil -- holds that have ended must be looked for first
      end
      if rules_known == MAX_RULES then
        known_rules, rules_known = {}, 0
      end
      known_rules[text], rules_known = rule, rules_known + 1
    end
    at = at + RULE
    return rule
  end
end

-- The state of one run.
local asked_keys
local too_late -- entries with a not-after below this are expired; NO_NOT_AFTER is not below
local rules = {} -- the batch's rules, by number
local keys, markers -- how many were used so far
local key, holds -- the Redis keys of the entry before, and of its holds if they were given
local reply, replies = {}, 0 -- the pieces of the reply, and their number
local MAX_PIECES = 200

local function read_entry(e)
  local form, rule, rule_low, after, after_low, cost = byte(packed, at, at + 5)
  at = at + 6
  e.cost, e.count, e.holds, e.full = cost, 1, nil, false
  after = after * 256 + after_low
  e.late = after < too_late
  e.rule = rules[rule * 256 + rule_low]
  if form == TAKE then
    keys = keys + 1
    key, holds = asked_keys[keys], nil
    e.operation = TAKE
  else
    local flags = form - form % 8
    e.operation = form % 8 + (form >= 128 and 8 or 0)
    if flags % 16 == 0 then
      keys = keys + 1
      key, holds = asked_keys[keys], nil
    end
    if flags % 32 >= 16 then
      at = at + 2 -- see group_at
    end
    if flags % 64 >= 32 then
      e.cost = next_number(7)
    end
    if flags % 128 >= 64 then
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
      e.result = 0
    elseif e.operation >= HOLD then
      e.id, at, e.result = sub(packed, at, at + 7), at + 8, 0
      e.life = next_number(7)
      if e.count > 1 then
        e.each, at = at, at + e.count * EACH_BYTES
      end
    elseif e.operation == CHARGE then
      e.sequence, e.pairs = next_number(7), at
      e.marker = asked_keys[#asked_keys - markers]
      markers, at = markers + 1, at + e.cost * PAIR
    end
  end
  if e.rule.gives_back or e.operation >= HOLD or e.operation == FORGET then
    if not holds then
      keys = keys + 1
      holds = asked_keys[keys]
    end
    e.holds = holds
  end
  e.key = key
  return e
end

local function write(s, more)
  if s.holds_changed then -- before the charge: if only one of the two is written, it must be this one
    write_holds(s, more)
  end
  if not s.changed then
    return
  end
  s.changed = false
  if not s.charged and (s.tag == 0 or s.rule.algorithm.empty(s)) then
    call('DEL', s.key)
  else
    s.rule.algorithm.write(s, s.rule)
  end
end

-- Reads a key under a rule into s. Returns false if the value is not ours to read, or is damaged.
local function look_at(s, key, rule)
  if s.key ~= key then
    forget_holds(s)
  end
  if open(s, key) and (s.raw == '' or sound(s, rule)) then
    s.rule = rule
    keep_time(s)
    rule.algorithm.look(s, rule)
    return true
  end
  s.key = ''
  return false
end

-- Writes the units that were given back or charged in memory, and reads the state again. Returns false if the state
-- proves to be damaged. A key whose units were all given back is deleted only when another key comes: while its
-- slot moves, a Cluster's node refuses commands about a key that it does not have.
local function write_and_look(e, s)
  if s.changed and not s.charged and s.key == e.key and s.rule == e.rule and (s.tag == 0 or s.rule.algorithm.empty(s)) then
    local is_zset = s.tag == TAG_LOG_ZSET or s.is_zset
    seen_key, seen = s.key, ''
    look_at(s, e.key, e.rule)
    s.changed, s.is_zset = true, is_zset
    return true
  end
  write(s, s.key == e.key)
  return look_at(s, e.key, e.rule)
end

-- Prepares for an algorithm that looks for units to give back, or charges of the past, in the stored state and not
-- in memory: writes the earlier charges. Returns false if the state is damaged.
local function before_giving(e, s)
  return not s.changed or e.rule.algorithm.recount ~= nil or write_and_look(e, s)
end

-- Brings the state up to date after units were given back, or charged with a stamp. Returns false if it is damaged.
local function after_giving(e, s)
  local algorithm = e.rule.algorithm
  if algorithm.recount and not algorithm.empty(s) then
    algorithm.recount(s, e.rule)
    return true
  end
  s.charged = s.charged and not algorithm.recount -- no charge is left in memory
  return write_and_look(e, s)
end

-- Reads the holds of the entry's key, if they matter to the entry, and gives back those that have ended. Returns
-- false if an entry about a hold cannot read the holds, or if the state is damaged.
local function look_at_holds(e, s)
  if e.operation < HOLD then
    if not is_due(e, s) or not read_holds(e, s) then
      return true
    end
  elseif not read_holds(e, s) then
    return false
  elseif e.operation >= SETTLE then -- a settlement may be late if it comes before anything else ends the hold
    return true
  end
  local stamps, units = end_holds(s, e.rule, e.operation >= HOLD and room(s) < 1)
  if not stamps then
    return true
  end
  if not before_giving(e, s) then
    return false
  end
  release(s, e.rule, stamps, units, units)
  return after_giving(e, s)
end

-- Corrects what was charged for a hold to what was used: gives back the rest, or charges more. Returns 1 if the
-- hold exists, 2 if it had been given back, otherwise 0. Sets e.result to the number of units given back or charged.
local function settle_hold(e, s, rule)
  local stamp, units = take_hold(e, s)
  if not stamp then
    return 0
  end
  if e.cost < units then
    e.result = release(s, rule, { stamp }, { units }, { units - e.cost })
  elseif e.cost > units then
    e.result = charge_used(s, rule, e.cost - units)
  end
  if not after_giving(e, s) then
    return UNREADABLE
  end
  return units == 0 and e.id ~= NO_HOLD and 2 or 1
end

-- The same for each settlement of an entry with a count, as if they had come one after another: first those that
-- give units back, then those that charge more. So a log is written at most twice, however many there are. Returns
-- the number of holds that exist, and sets e.outcomes to what settle_hold would have returned for each.
local function settle_holds(e, s, rule)
  local lines, found, alike, more, outcomes = take_lines(s.lines, 0, e.each, e.count)
  s.lines, s.holds_changed, e.outcomes = lines, s.holds_changed or found > 0, outcomes
  if alike then
    e.result = release(s, rule, alike.stamps, nil, alike.units, alike)
    if not after_giving(e, s) then
      return UNREADABLE
    end
  end
  if more > 0 then
    e.result = e.result + charge_used(s, rule, more)
    if not after_giving(e, s) then
      return UNREADABLE
    end
  end
  return found
end

-- Reads the number in a CHARGE's marker, 0 if there is no marker. Returns false if the value is not ours to read.
local function read_marker(e)
  local text = read('GET', e.marker)
  e.known = text and whole(text) or 0
  return not text or e.known > 0
end

local charge_past
do
  -- How long markers live: a minute longer than the state that the charge leaves. By then all of its units have left
  -- the window, and a repeat would charge none. The life is ten minutes at most, and repeats must come within that
  -- time: otherwise an outage of hours would fill Redis with markers.
  local MARKER_LONGER, MARKER_LONGEST = 60000, 600000 -- ms

  -- Charges the units of a CHARGE, unless they were charged before; returns how many.
  function charge_past(e, s, rule)
    if e.known >= e.sequence then
      return 0
    end
    local stamps, units, from = {}, {}, e.pairs
    for i = 1, e.cost do
      units[i] = unpack_int(packed, from, 6)
      stamps[i] = s.now - unpack_time(packed, from + 6)
      from = from + PAIR
    end
    local charged = charge_at(s, rule, rule.algorithm.charge, stamps, units)
    if s.changed and not write_and_look(e, s) then
      return UNREADABLE
    end
    local life = MARKER_LONGEST
    if not virtual then
      local lasts = rule.algorithm.reset(s, rule)
      if rule.algorithm.youngest then -- a log's units may matter to a rule with a longer window
        lasts = lasts + s.longest - rule.window
      end
      life = math.min(life, MARKER_LONGER + divide_up(lasts, 1000))
    end
    call('SET', e.marker, decimal(e.sequence), 'PX', decimal(life))
    return charged
  end
end

-- Sets e.fits to how many of the entry's count fit (for a TAKE_UP_TO: how many units). Neighboring entries with the
-- same key and rule share a state: they charge it in memory, and it is written when another key comes.
local function look(e, s)
  if e.late then
    e.fits = EXPIRED -- the caller has given up: a charge now would be late (law 4)
    return
  end
  if e.operation == SLOTS and not e.rule.algorithm.statement then -- a limit with a window has no slots
    e.fits = UNREADABLE
    return
  end
  if e.operation == FORGET then
    if s.key ~= e.key then -- what was changed in memory is forgotten, too
      write(s)
    end
    e.fits = 1 -- whatever the value of the key is
    return
  end
  -- A CHARGE finds the places of its units in the stored state; so do refunds and settlements with some algorithms.
  local operation = e.operation
  if s.key ~= e.key or s.rule ~= e.rule or operation == CHARGE
    or ((operation == REFUND or operation == SETTLE) and not e.rule.algorithm.recount) then
    if not write_and_look(e, s) then
      e.fits = UNREADABLE
      return
    end
  end
  if e.holds and not look_at_holds(e, s) then
    e.fits = UNREADABLE
    return
  end
  local free, cost = s.free, e.cost
  if operation == CHARGE then
    e.fits = read_marker(e) and 1 or UNREADABLE
  elseif operation == TAKE_UP_TO then
    e.fits = math.min(cost, free)
  elseif operation == HOLD or operation == HOLD_UP_TO then
    e.full = room(s) < e.count
    if e.full then
      e.fits = 0
    elseif operation == HOLD then
      e.fits = cost <= free and e.count or 0
    else
      e.fits = math.min(cost, free)
    end
  elseif operation > PEEK then
    e.fits = 1
  elseif cost > free then
    e.fits = 0
  elseif e.count == 1 then
    e.fits = 1
  else
    e.fits = math.min(e.count, floor(free / cost))
  end
end

-- Answers an entry with n numbers, of which the first may be negative.
local function answer(n, outcome, a, b, c, d, e)
  local text = char(ANSWER_NUMBERS, n, bytes_of(outcome + OUTCOME_OFFSET))
  if n > 1 then
    local fourth = n > 4 and pack_time(d) or ''
    local fifth = n > 5 and (d == e and fourth or pack_time(e)) or ''
    text = text .. pack_time(a) .. pack_time(b) .. pack_time(c) .. fourth .. fifth
  end
  replies = replies + 1
  reply[replies] = text
end

-- Carries out what look has found to fit, and answers.
local function carry_out(e, s, charge)
  local outcome, operation, rule = e.fits, e.operation, e.rule
  if outcome < 0 then
    return answer(1, outcome)
  elseif outcome > 0 and not charge then
    outcome = HELD_BACK
  elseif operation <= TAKE_UP_TO then
    if outcome > 0 then
      rule.algorithm.take(s, rule, operation == TAKE and outcome * e.cost or outcome)
      s.newest, s.charged, s.changed = s.now, true, true
    end
  elseif operation == REFUND then
    outcome = 0
    -- The key no longer knows a charge whose stamp is above the newest.
    if e.stamp <= s.newest then
      outcome = rule.algorithm.give(s, rule, e.stamp, e.charged, e.cost)
    end
    if not after_giving(e, s) then
      outcome = UNREADABLE
    end
  elseif operation == FORGET then
    -- Both keys are deleted when another one comes, see write_and_look. A log in a sorted set that is written again
    -- before must know that there is one, see log_zset.lua.
    local is_zset = s.key == e.key and s.is_zset or open(s, e.key) and s.tag == TAG_LOG_ZSET
    s.key, seen_key, seen = '', e.key, ''
    look_at(s, e.key, rule)
    s.holds, s.first, s.last, s.lines = e.holds, LATEST, 0, ''
    s.changed, s.holds_changed, s.is_zset = true, true, is_zset
  elseif operation == LEASE then
    outcome = grant_lease(e, s, rule)
  elseif operation == HOLD or operation == HOLD_UP_TO then
    if outcome > 0 then
      hold(e, s, rule, operation == HOLD and e.cost or outcome)
    end
  elseif operation == SETTLE then
    outcome = (e.count > 1 and settle_holds or settle_hold)(e, s, rule)
  elseif operation == EXTEND then
    outcome = extend(e, s, rule)
  elseif operation == SLOTS then
    outcome = rule.algorithm.statement(s, rule, e.cost)
    if outcome > 0 and not after_giving(e, s) then
      outcome = UNREADABLE
    end
  elseif operation == CHARGE then
    outcome = math.min(charge_past(e, s, rule), 2 ^ 53)
  end
  if outcome == UNREADABLE then -- the state proved to be damaged only when it was written
    return answer(1, outcome)
  end
  local reset = rule.algorithm.reset(s, rule)
  if operation == LEASE or operation >= SETTLE then
    answer(5, outcome, s.free, reset, s.offset, math.min(e.result, 2 ^ 53))
    if e.count > 1 then
      reply[replies] = reply[replies] .. e.outcomes
    end
    return
  end
  local up_to = operation == TAKE_UP_TO or operation == HOLD_UP_TO
  if outcome < 0 or outcome >= e.count or operation == REFUND or operation == CHARGE or operation == SLOTS then
    return answer(4, outcome, s.free, reset, s.offset)
  end
  if e.full then
    return answer(6, outcome, s.free, reset, s.offset, until_room(s), 0)
  end
  local cost = up_to and 1 or e.cost
  local retry_after = rule.algorithm.wait(s, rule, cost)
  local next_after = 0
  if s.free == 0 then
    next_after = cost == 1 and retry_after or rule.algorithm.wait(s, rule, 1)
  end
  answer(6, outcome, s.free, reset, s.offset, retry_after, next_after)
end

local state = new_state()
local entry = {
  operation = 0, rule = false, late = false, cost = 0, count = 0, key = '', fits = 0, full = false,
}

-- Decides the entries of a TAKES: those that are in time by the rule's plain function, as far as it can, and the others as
-- any entry. No neighbor shares the key of one of them.
local function decide_takes(s)
  local _, rule, rule_low, after, after_low, cost, n, n_low = byte(packed, at, at + 7)
  rule, n = rules[rule * 256 + rule_low], n * 256 + n_low
  local plain, some_late = cost <= rule.most_plain and rule.plain, after * 256 + after_low < too_late
  local first, last, not_after, e = keys + 1, keys + n, at + 8, entry
  at, keys = not_after + 2 * n, last
  for number = first, last do
    local late = some_late and unpack_int(packed, not_after + 2 * (number - first), 2) < too_late
    local encoded
    if plain and not late then
      if s.key ~= '' then
        write(s)
        s.key = '' -- it may be the same key, under another rule
      end
      encoded = plain(asked_keys[number], cost, rule, true)
    end
    if encoded then
      replies = replies + 1
      reply[replies] = encoded
    else
      e.operation, e.rule, e.cost, e.count, e.key, e.holds, e.full, e.late = TAKE, rule, cost, 1, asked_keys[number], nil, false, late
      look(e, s)
      carry_out(e, s, true)
    end
  end
end

-- Decides entries up to the first that is no plain one. A plain one is a TAKE, a REFUND or a renewal of slots, in time, that
-- shares its key with no neighbor, and that its rule's plain function can decide; or a REFUND of slots together with the
-- TAKE after it. If all of a count fit, they are one charge of their total cost; otherwise a part of them may fit, and it
-- is no plain one.
local decide_plain_entries
do
  local LONG_SLOTS = SLOTS + 32 -- a form

  -- Decides a REFUND of slots and the entry at a position after it, which has the same key. Returns both answers, and the
  -- position after that entry; or nothing if it is no TAKE of the same rule that fits, or not the last entry of the key.
  local function exchange(key, given, rule, from)
    local form, number, number_low, after, after_low, cost, a, b, c, next_form = byte(packed, from, from + 9)
    local next_at = from + 9
    if form == TAKE + 8 then
      next_at, next_form = from + 6, a
    elseif form == COUNTED_TAKE + 8 then
      cost = cost * ((a * 256 + b) * 256 + c)
    else
      return
    end
    if rules[number * 256 + number_low] == rule and cost <= rule.most_plain and after * 256 + after_low >= too_late
      and not (next_form and next_form % 16 >= 8) then
      return rule.plain_exchange(key, given, cost, rule), next_at
    end
  end

  function decide_plain_entries(s)
    local from, last, n, ends = at, keys, replies, #packed
    while from <= ends and n < MAX_PIECES do
      local form, number, number_low, after, after_low, cost, a, b, c, next_form = byte(packed, from, from + 9)
      local rule, next_at = rules[number * 256 + number_low], from + 9
      local plain = rule.plain
      if form == TAKE then
        next_at, next_form = from + 6, a
      elseif form == COUNTED_TAKE then
        cost = cost * ((a * 256 + b) * 256 + c)
      elseif form == LONG_TAKE then
        cost, next_at = unpack_time(packed, from + 6), from + 13
        next_form = byte(packed, next_at)
      elseif form == REFUND then
        plain, next_at = rule.plain_refund, from + 20
        next_form = byte(packed, next_at)
      elseif form == LONG_SLOTS and unpack_time(packed, from + 6) == AS_KNOWN then
        plain, next_at = rule.plain_renewal, from + 13
        next_form = byte(packed, next_at)
      else
        break
      end
      after = after * 256 + after_low
      local alone = not next_form or next_form % 16 < 8
      if not plain or cost > rule.most_plain or after < too_late or not (alone or (form == REFUND and rule.plain_exchange)) then
        break
      end
      if s.key ~= '' then
        write(s)
        s.key = '' -- it may be the same key, under another rule
      end
      local encoded
      if alone then
        encoded = plain(asked_keys[last + 1], cost, rule, form ~= COUNTED_TAKE)
      else
        encoded, next_at = exchange(asked_keys[last + 1], cost, rule, next_at)
      end
      if not encoded then
        break
      end
      from, last, n = next_at, last + 1, n + 1 -- the next entry has another key, so key and holds do not matter
      reply[n] = encoded
    end
    at, keys, replies = from, last, n
  end
end

-- Deletes the list of holds that a settlement has emptied, unless further holds were opened since then. If the list was
-- deleted since then, and its slot moves, a Cluster's node refuses to read it.
local function delete_emptied(s)
  if s.emptied and #pcall('GETRANGE', s.emptied, '0', decimal(HOLDS_HEAD)) == HOLDS_HEAD then
    call('DEL', s.emptied)
  end
  s.emptied = false
end

-- The same for a HOLD or SETTLE, unless the entry before has left a state of its key in memory.
local function held_plainly(s)
  local form, rule, rule_low, after, after_low, cost = byte(packed, at, at + 5)
  local operation = form >= 128 and form % 8 + 8
  form = form - form % 8
  local same = form % 16 >= 8
  if (operation ~= HOLD and operation ~= SETTLE) or form % 32 >= 16 or (same and s.key == key) then
    return false
  end
  rule = rules[rule * 256 + rule_low]
  after = after * 256 + after_low
  local from, count = at + 6, 1
  if form % 64 >= 32 then
    cost, from = unpack_time(packed, from), from + 7
  end
  if form % 128 >= 64 then
    count, from = unpack_int(packed, from, 3), from + 3
  end
  if not rule.straight or cost > rule.most_plain or after < too_late then
    return false
  end
  local id, each = sub(packed, from, from + 7), from + 15
  local next_at = each + (count > 1 and count * EACH_BYTES or 0)
  local entry_key, entry_holds, last = key, holds, keys
  if not same then
    entry_key, entry_holds, last = asked_keys[last + 1], nil, last + 1
  end
  if not entry_holds then
    entry_holds, last = asked_keys[last + 1], last + 1
  end
  write(s)
  s.key = ''
  local encoded, emptied
  if operation == HOLD then
    local after_emptied = s.emptied_before == at
    encoded = hold_plainly(entry_key, entry_holds, rule, cost, id, unpack_time(packed, from + 8), each, count, after_emptied)
    if encoded and after_emptied then
      s.emptied = false
    end
  else
    local next_form = byte(packed, next_at)
    encoded, emptied = settle_plainly(entry_key, entry_holds, rule, cost, id, each, count, next_form and next_form % 16 >= 8)
  end
  if not encoded then
    return false
  end
  if emptied then
    if s.emptied ~= entry_holds then
      delete_emptied(s)
    end
    s.emptied, s.emptied_before = entry_holds, next_at
  end
  at = next_at
  keys, key, holds, replies = last, entry_key, entry_holds, replies + 1
  reply[replies] = encoded
  return true
end

-- Runs the current group of entries: all are charged or none (law 9). s is the state of the entry before.
local run_group
do
  local GROUPED_TAKE, GROUPED_HOLD = TAKE + 16, HOLD + 136 -- forms
  local LONG_GROUPED_TAKE, LONG_GROUPED_HOLD = GROUPED_TAKE + 32, GROUPED_HOLD + 32

  -- The group number of the entry at a position, 0 if it is in no group.
  local function group_at(from)
    local form, _, _, _, _, _, group, group_low = byte(packed, from, from + 7)
    return form and form % 32 >= 16 and group * 256 + group_low or 0
  end

  -- Decides the current group if all of its entries are TAKEs and HOLDs that can be decided straight through. Returns
  -- whether it did. If not, nothing was written, and nothing was answered.
  local function decided_group_plainly()
    local from, n, last = at, 0, keys
    local form, rule, rule_low, after, after_low, cost, a, b = byte(packed, at, at + 7)
    local group, group_low = a, b
    local entry_key, entry_holds
    begin_group()
    repeat
      from = from + 8
      if form ~= GROUPED_TAKE and (form == LONG_GROUPED_TAKE or form == LONG_GROUPED_HOLD) then
        cost, from, form = unpack_time(packed, from), from + 7, form - 32
      end
      rule, after = rules[rule * 256 + rule_low], after * 256 + after_low
      local encoded
      if cost <= rule.most_plain and after >= too_late then
        entry_key, entry_holds, last = asked_keys[last + 1], nil, last + 1
        if form == GROUPED_TAKE then
          encoded = rule.plain and rule.plain(entry_key, cost, rule)
        elseif form == GROUPED_HOLD and rule.straight then
          entry_holds, last = asked_keys[last + 1], last + 1
          local id, life = sub(packed, from, from + 7), unpack_time(packed, from + 8)
          encoded, from = hold_plainly(entry_key, entry_holds, rule, cost, id, life, 0, 1), from + 15
        end
      end
      if not encoded then
        end_group(false)
        return false
      end
      n = n + 1
      reply[replies + n] = encoded -- if the group proves not to be plain, run_group overwrites these answers
      form, rule, rule_low, after, after_low, cost, a, b = byte(packed, from, from + 7)
    until not form or form % 32 < 16 or a ~= group or b ~= group_low
    end_group(true)
    at, keys, replies = from, last, replies + n
    key, holds = entry_key, entry_holds
    return true
  end

  function run_group(s)
    write(s)
    s.key = '' -- the group may write it
    if decided_group_plainly() then
      return
    end
    local number = group_at(at)
    local group, states, charge = {}, {}, true
    repeat
      local e, state = read_entry({}), new_state()
      look(e, state)
      charge = charge and e.fits > 0
      group[#group + 1] = e
      states[#group] = state
    until group_at(at) ~= number
    for i = 1, #group do
      carry_out(group[i], states[i], charge)
      write(states[i])
    end
  end
end

-- A single entry has its own short path: where few callers ask at a time, most decisions come one by one. asked has the
-- base and the entry.
local decided_single
do
  local LONE_HOLD, LONG_HOLD = HOLD + 120, HOLD + 152 -- forms
  local LONE_SETTLE, LONG_SETTLE = SETTLE + 120, SETTLE + 152

  function decided_single(all_keys, rule, asked)
    if not rule.straight then
      return
    end
    local a, b, c, d, e, f, g, form, _, _, after, _, cost, h, i, j = byte(asked, 1, 16)
    local id_at, whole = 14, form ~= COUNTED_TAKE -- a part of a count may fit
    if form == COUNTED_TAKE then
      form, cost = TAKE, cost * ((h * 256 + i) * 256 + j)
    elseif form == LONG_TAKE or form == LONG_HOLD or form == LONG_SETTLE then
      form, cost, id_at = form - 32, unpack_time(asked, 14), 21
    end
    if cost > rule.most_plain or (after < 255 and clock > (((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g) then
      return
    elseif form == TAKE then
      return rule.plain and rule.plain(all_keys[1], cost, rule, whole)
    elseif form == REFUND then
      return rule.plain_refund and rule.plain_refund(all_keys[1], cost, rule)
    elseif form == LONE_HOLD then
      return hold_plainly(all_keys[1], all_keys[2], rule, cost, sub(asked, id_at, id_at + 7), unpack_time(asked, id_at + 8), 0, 1)
    elseif form == LONE_SETTLE then
      return settle_plainly(all_keys[1], all_keys[2], rule, cost, sub(asked, id_at, id_at + 7), 0, 1)
    end
  end
end

-- Joins the pieces of the reply. It is called once there are many: miniredis's table.concat fails with a few thousand.
local function shorten_reply()
  reply[1], replies = concat(reply, '', 1, replies), 1
end

-- Decides the holds of an entry one by one, because not all of them fit.
local function hold_each(e, s)
  local n, from, fits = e.count, e.each, e.fits
  local denied, encoded -- the cost of the hold before if it was denied, and its answer
  if n == 1 or fits < 0 then
    for _ = 1, n do
      carry_out(e, s, true)
    end
    return
  end
  e.count = 1
  for _ = 1, n do
    e.id, e.cost = sub(packed, from, from + 7), unpack_time(packed, from + 8)
    from = from + EACH_BYTES
    if e.cost == denied then -- the same cost gets the same answer
      replies = replies + 1
      reply[replies] = encoded
    else
      look(e, s)
      carry_out(e, s, true)
      denied, encoded = e.fits == 0 and e.cost, reply[replies]
    end
    if replies >= MAX_PIECES then
      shorten_reply()
    end
  end
end

local function decide(all_keys, asked)
  if not call then
    import()
  end
  asked_keys, keys, markers = all_keys, 0, 0
  header_tag, seen_key, put = nil, nil, call -- an error may have ended the last run half-way
  packed, at = asked[1], 1
  local single = asked[2]
  if single then
    read_clock()
    local rule = known_rules[packed] or read_rule()
    local encoded = decided_single(all_keys, rule, single)
    if encoded then
      local kind = byte(encoded)
      if kind == ANSWER_CHARGED_MORE then
        kind = byte(encoded, 9)
      end
      if kind == ANSWER_ALLOWED or kind == ANSWER_NUMBERS then
        encoded = encoded .. pack_time(clock)
      end
      return encoded
    end
    rules[1], packed, at = rule, single, 1
    too_late = clock > next_number(7) and 1 or 0
  else
    local a, b, c, d, e, f, g, h, i, j, k, l, m, n, count, count_low = byte(packed, 1, 16)
    if a + b + c + d + e + f + g > 0 then
      clock, virtual = unpack_time(packed, 1), true
    else
      read_clock()
    end
    local base = (((((h * 256 + i) * 256 + j) * 256 + k) * 256 + l) * 256 + m) * 256 + n
    at, too_late = 17, math.min((clock - base) / NOT_AFTER_STEP, NO_NOT_AFTER)
    for number = 1, count * 256 + count_low do
      rules[number] = read_rule()
    end
  end
  local s = state
  s.key, s.changed, s.holds_changed, s.emptied, s.emptied_before, replies = '', false, false, false, 0, 0

  if not single and byte(packed, at) ~= MANY_TAKES then -- a single one was tried above
    decide_plain_entries(s)
  end
  while at <= #packed do
    local form = byte(packed, at)
    if form == MANY_TAKES then
      decide_takes(s)
    elseif form % 32 >= 16 then
      run_group(s)
    elseif not held_plainly(s) then
      local e = read_entry(entry)
      look(e, s)
      if e.operation == HOLD and e.fits < e.count then
        hold_each(e, s)
      else
        carry_out(e, s, true)
      end
    end
    if replies >= MAX_PIECES then
      shorten_reply()
    end
    if at <= #packed then
      decide_plain_entries(s)
    end
  end
  write(s)
  delete_emptied(s)
  reply[replies + 1] = header_tag and sub(header_now, 2, 8) or pack_time(clock)
  return concat(reply, '', 1, replies + 1)
end
