-- The frame: runs a batch of entries, one by one in order, exactly as if each had
-- come alone; entries of one group are charged all or none (law 9).
--
--   KEYS  one key per entry (a key may come more than once)
--   ARGV  clock ("" for Redis's own), number of rules,
--         per rule:  algorithm, quota, window in µs, and four dials:
--                    sliding counter: k, strict, 0, 0
--                    GCRA:            burst, and the interval a + n/d as a, n, d
--                    fixed window:    0; or with window 0, of the calendar: where the
--                                     last, this, the next window and its next begin, µs
--         per entry: operation, rule (counted from 1), not after (µs on Redis's clock,
--                    0 for always), group (0 for none), cost, and for a refund also
--                    the cost and the stamp of the charge
--   reply clock, then per entry: status, units granted, units remaining, in µs: retry
--         after, next after (until a single unit is free), reset after; and the stamp,
--         the key's own time, by which a refund finds the charge

local TAKE, TAKE_UP_TO, PEEK, REFUND, FORGET = 1, 2, 3, 4, 5
local DENIED, ALLOWED, EXPIRED, UNREADABLE, HELD_BACK = 0, 1, 2, 3, 4

local at = 2
local function next_number()
  at = at + 1
  return tonumber(ARGV[at])
end

local rules = {}
for i = 1, tonumber(ARGV[2]) do
  local code = next_number()
  local rule = { algorithm = algorithm(code), quota = next_number(), window = next_number() }
  local dial1, dial2, dial3, dial4 = next_number(), next_number(), next_number(), next_number()
  if code == 2 then
    rule.k, rule.strict = dial1, dial2 == 1
  elseif code == 3 then
    rule.burst, rule.a, rule.n, rule.d = dial1, dial2, dial3, dial4
  elseif code == 4 and rule.window == 0 then
    rule.bounds = { dial1, dial2, dial3, dial4 }
  end
  rules[i] = rule
end

local function read_entry(i)
  local e = {
    key = KEYS[i],
    operation = next_number(),
    rule = rules[next_number()],
    not_after = next_number(),
    group = next_number(),
    cost = next_number(),
  }
  if e.operation == REFUND then
    e.charged, e.stamp = next_number(), next_number()
  end
  return e
end

-- The states that this run has read, by key. What is taken is taken in memory, and
-- written once at the end: a key that many entries name costs little more than one.
local states = {}

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

-- The state of a key under a rule; nil if it is not ours to read.
local function state_of(key, rule, fresh)
  local s = states[key]
  if s and s.rule == rule and not fresh then
    return s
  elseif s then
    write(s)
  end
  s = open(key)
  if s and (s.tag == 0 or code_of[s.tag]) then
    s.rule = rule
    rule.algorithm.look(s, rule)
    states[key] = s
    return s
  end
end

local function look(e)
  if e.not_after > 0 and clock > e.not_after then
    e.status = EXPIRED -- whoever asked has given up: a charge now would be late (law 4)
    return
  end
  -- A refund finds its charge in what is stored.
  local s = state_of(e.key, e.rule, e.operation == REFUND)
  e.state = s
  if s == nil then
    e.status = UNREADABLE
  elseif e.operation == TAKE or e.operation == PEEK then
    e.status = s.free >= e.cost and ALLOWED or DENIED
  elseif e.operation == TAKE_UP_TO then
    e.cost = math.min(e.cost, s.free)
    e.status = e.cost > 0 and ALLOWED or DENIED
  else
    e.status = ALLOWED
  end
end

local reply = { clock }

-- Carries out what look has found possible, and answers.
local function settle(e, charge)
  local s, rule = e.state, e.rule
  local granted, retry_after, next_after, reset_after = 0, 0, 0, 0
  if e.status == ALLOWED and not charge then
    e.status = HELD_BACK
  elseif e.status == ALLOWED then
    if e.operation == TAKE or e.operation == TAKE_UP_TO then
      rule.algorithm.take(s, rule, e.cost)
      s.newest, s.charged, s.changed, granted = s.now, true, true, e.cost
    elseif e.operation == REFUND then
      -- A charge younger than the newest is one that the key no longer knows.
      if e.stamp <= s.newest then
        granted = rule.algorithm.give(s, rule, e.stamp, e.charged, e.cost)
      end
      s = state_of(e.key, rule, true)
    elseif e.operation == FORGET then
      call('DEL', e.key)
      states[e.key] = nil
      s = state_of(e.key, rule)
    end
  elseif e.status == DENIED then
    retry_after = rule.algorithm.wait(s, rule, math.max(1, e.cost))
    if s.free == 0 then
      next_after = e.cost <= 1 and retry_after or rule.algorithm.wait(s, rule, 1)
    end
  end
  if s then
    reset_after = rule.algorithm.reset(s, rule)
  end
  local n = #reply
  reply[n + 1] = e.status
  reply[n + 2] = granted
  reply[n + 3] = s and s.free or 0
  reply[n + 4] = retry_after
  reply[n + 5] = next_after
  reply[n + 6] = reset_after
  reply[n + 7] = s and s.now or 0
end

local total = #KEYS
local i, pending = 1, nil
while i <= total do
  local e = pending or read_entry(i)
  pending = nil
  look(e)
  if e.group == 0 then
    settle(e, true)
    i = i + 1
  else
    local group, charge = { e }, e.status == ALLOWED
    while i + #group <= total do
      local mate = read_entry(i + #group)
      if mate.group ~= e.group then
        pending = mate
        break
      end
      look(mate)
      charge = charge and mate.status == ALLOWED
      group[#group + 1] = mate
    end
    for _, mate in ipairs(group) do
      settle(mate, charge)
    end
    i = i + #group
  end
end

for _, s in pairs(states) do
  write(s)
end

return reply
