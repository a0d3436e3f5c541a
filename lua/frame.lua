-- The frame: runs a batch of entries, one by one in order, exactly as if each had
-- come alone; entries of one group are charged all or none (law 9).
--
--   KEYS  one key per entry (a key may come more than once)
--   ARGV  clock ("" for Redis's own), number of rules,
--         per rule:  algorithm, quota, window in µs, and four dials:
--                    sliding counter: k, strict, 0, 0
--                    GCRA:            burst, and the interval a + n/d as a, n, d
--         per entry: rule (counted from 1), cost,
--                    not after (µs on Redis's clock, 0 for always), group (0 for none)
--   reply clock, then per entry: status, units remaining, and in µs: retry after,
--         next after (until a single unit is free), reset after

local DENIED, ALLOWED, EXPIRED, UNREADABLE, HELD_BACK = 0, 1, 2, 3, 4

local rules = {}
local at = 2
for i = 1, tonumber(ARGV[2]) do
  local rule = {
    algorithm = algorithms[tonumber(ARGV[at + 1])],
    quota = tonumber(ARGV[at + 2]),
    window = tonumber(ARGV[at + 3]),
  }
  if rule.algorithm == counter then
    rule.k = tonumber(ARGV[at + 4])
    rule.strict = ARGV[at + 5] == '1'
  elseif rule.algorithm == gcra then
    rule.burst = tonumber(ARGV[at + 4])
    rule.a, rule.n, rule.d = tonumber(ARGV[at + 5]), tonumber(ARGV[at + 6]), tonumber(ARGV[at + 7])
    rule.burst_whole, rule.burst_part = span(rule, rule.burst)
  end
  rules[i] = rule
  at = at + 7
end

local function read_entry(i)
  local from = at + (i - 1) * 4
  return {
    key = KEYS[i],
    rule = rules[tonumber(ARGV[from + 1])],
    cost = tonumber(ARGV[from + 2]),
    not_after = tonumber(ARGV[from + 3]),
    group = ARGV[from + 4],
  }
end

local function look(e)
  if e.not_after > 0 and clock > e.not_after then
    e.status = EXPIRED -- whoever asked has given up: a charge now would be late (law 4)
    return
  end
  local s = open(e.key)
  if s == nil or (s.tag ~= 0 and held[s.tag] == nil) then
    e.status = UNREADABLE
    return
  end
  e.state = s
  e.rule.algorithm.look(s, e.rule)
  e.status = s.free >= e.cost and ALLOWED or DENIED
end

local reply = { clock }

local function settle(e, charge)
  local s, rule = e.state, e.rule
  local retry_after, next_after = 0, 0
  if e.status == ALLOWED then
    if charge then
      rule.algorithm.take(s, rule, e.cost)
      s.free = s.free - e.cost
    else
      e.status = HELD_BACK
    end
  elseif e.status == DENIED then
    retry_after = rule.algorithm.wait(s, rule, e.cost)
    if s.free == 0 then
      next_after = e.cost == 1 and retry_after or rule.algorithm.wait(s, rule, 1)
    end
  end
  local n = #reply
  reply[n + 1] = e.status
  reply[n + 2] = s and s.free or 0
  reply[n + 3] = retry_after
  reply[n + 4] = next_after
  reply[n + 5] = s and rule.algorithm.reset(s, rule) or 0
end

local i, total = 1, #KEYS
while i <= total do
  local group = { read_entry(i) }
  while group[1].group ~= '0' and i + #group <= total do
    local e = read_entry(i + #group)
    if e.group ~= group[1].group then
      break
    end
    group[#group + 1] = e
  end
  local charge = true
  for _, e in ipairs(group) do
    look(e)
    charge = charge and e.status == ALLOWED
  end
  for _, e in ipairs(group) do
    settle(e, charge)
  end
  i = i + #group
end

return reply
