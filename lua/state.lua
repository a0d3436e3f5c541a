-- The state of one key: the common part of all encodings.
--
-- Part of the decision script; numbers.lua lists the parts in their order.
--
--   takes  numbers
--   gives  the names of tags, codes and answers; the clock and the packed argument (clock, virtual,
--          read_clock, packed, at, next_number); reading a state (new_state, read, open, sound,
--          keep_time, seen_key, seen) and writing one (put, begin_group, end_group; header,
--          store, expiry, expire, decimal); find_record; the algorithms (make, algorithm, made, code_of) and
--          what a new algorithm inherits (inherit, group_size, since)
--
--   byte  1      tag: encoding and version. 1, 2 sliding log (5- and 6-byte
--                stamps), 3 sliding counter, 4 GCRA, 5 fixed window. A changed
--                encoding gets a new number; an unknown tag is left alone. Tag 6
--                is a sorted set, see log_zset.lua; 7 and 8 are not states, see
--                lease.lua and hold.lua; 10 is the units held at the same time, see
--                concurrent.lua. 9 was that in another encoding.
--                0 is never written: in memory it means that the key does not exist.
--   bytes 2-8    newest: the key's own time of its last charge, µs
--   bytes 9-15   offset: how far the key's own clock is ahead of Redis's, µs
--   from 16 on   the algorithm's own fields
--
-- The key's own clock is Redis's clock plus the offset. If Redis's clock steps back so far that the key's clock
-- would fall behind its newest charge, the offset grows by the difference: the key's time continues from that
-- charge at its normal pace. Nothing is granted again, and nothing is frozen (law 5).
--
-- Anyone who can write to Redis can put anything here, and memory can fail. Every state is checked when it is read
-- (see sound, and each algorithm's read): its lengths, and every field that says how much to read, to write or to
-- loop. So a damaged value makes only its own entry UNREADABLE, and never raises an error, which would end the
-- whole batch (law 7). Single stamps and counts are not checked: they can only make a decision wrong, and numbers
-- computed from them are kept in range.

local HEADER = 15
-- The tags. Those that Go knows, like the other numbers on which both sides must agree, are in wire.go and lua.go;
-- a test compares them.
local TAG_LOG, TAG_LONG_LOG, TAG_COUNTER, TAG_GCRA, TAG_FIXED_WINDOW, TAG_LOG_ZSET = 1, 2, 3, 4, 5, 6
local TAG_LEASES, TAG_HOLDS, TAG_SLOTS = 7, 8, 10
-- The codes by which rules name algorithms.
local SLIDING_LOG, SLIDING_COUNTER, GCRA, FIXED_WINDOW, SLIDING_LOG_ZSET, CONCURRENCY = 1, 2, 3, 4, 5, 6
local NO_OFFSET = '\0\0\0\0\0\0\0'
local PREFIX, PREFIX_END = 128, '127' -- bytes read at first: most states are no longer

-- Variables that are set at the beginning of each run.
local packed, at -- the packed argument and the position in it; see frame.lua
local header_tag, header_now -- the last header of a charge made now to a key without an offset
local clock, virtual -- Redis's clock in µs; if virtual, the clock of a test or a replay
local seen_key, seen -- the key and value that a plain decision (see rule below) has read and left to open

local function next_number(w)
  at = at + w
  return unpack_int(packed, at - w, w)
end

local function read_clock()
  local t = call('TIME')
  clock, virtual = t[1] * 1000000 + t[2], false
end

-- A whole number as text. Commands also take numbers, but convert them as floating point, which costs as much as a
-- whole command. For the same reason the constant arguments of commands are written as text.
local function decimal(n)
  return format('%d', n)
end

-- The function by which a plain decision (see rule below) writes. It is call, or, while the entries of a group are
-- decided, a function that postpones the call: a group of which not all entries fit writes nothing (law 9).
local put, begin_group, end_group
do
  local postponed, n = {}, 0 -- each call has a command and up to four arguments

  local function postpone(command, key, a, b, c)
    local i = n
    postponed[i + 1], postponed[i + 2], postponed[i + 3], postponed[i + 4], postponed[i + 5] = command, key, a, b, c
    n = i + 5
  end

  function begin_group()
    put, n = postpone, 0
  end

  -- Makes the postponed calls if the whole group fits.
  function end_group(fits)
    put = call
    for i = 1, fits and n or 0, 5 do
      local command, key, a, b, c = postponed[i], postponed[i + 1], postponed[i + 2], postponed[i + 3], postponed[i + 4]
      if c then
        call(command, key, a, b, c)
      elseif b then
        call(command, key, a, b)
      else
        call(command, key, a)
      end
    end
  end
end

-- The members of a sorted set that stand for the fields of a string's header. They come first.
local OFFSET, NEWEST, LONGEST, KEEP = '\0offset', '\0newest', '\0longest', '\0keep'
local MARKS = 4

-- The number in a mark whose score is negative. A positive score is accepted, too: older states have them.
local function negated(score)
  if score and sub(score, 1, 1) == '-' then
    score = sub(score, 2)
  end
  return whole(score)
end

-- Bounds of all states that this version writes. Times below LATEST (the year 2112) leave room for
-- sums below 2^53.
local LATEST = 2 ^ 52
local LONGEST_WINDOW = 31622400000000 -- µs: 366 days

-- Returns a table with every field that most states have, so that it is allocated in one step. is_zset means that the
-- key is still a sorted set although the state is that of no key, see write_and_look.
local function new_state()
  return {
    key = '', raw = '', tag = 0, newest = 0, offset = 0, now = 0, rule = false, free = 0,
    charged = false, changed = false, inherited = false, is_zset = false, lasts = 0, tat = 0, part = 0, count = 0, left = 0, added = 0,
    holds = nil, holds_changed = false, first = 0, last = 0, lines = '', emptied = false, emptied_before = 0,
  }
end

-- Runs a command that reads. Returns its reply, or its error if that says that the value is of another type. Other
-- errors, such as that of a right that the user does not have, are raised.
local function read(...)
  local reply = pcall(...)
  if type(reply) == 'table' and reply.err and not find(reply.err, 'WRONGTYPE', 1, true) then
    call(...) -- fails again
  end
  return reply
end

-- Reads a key's header into s. Returns false if the value is not ours.
local function open(s, key)
  local raw
  if key == seen_key and type(seen) == 'string' then
    raw, seen_key = seen, nil
  else
    raw = read('GETRANGE', key, '0', PREFIX_END)
  end
  s.key, s.raw, s.now = key, raw, clock
  s.charged, s.changed, s.inherited, s.is_zset, s.lasts = false, false, false, false, 0
  if #raw >= HEADER then
    local tag, a, b, c, d, e, f, g, h, i, j, k, l, m, n = byte(raw, 1, HEADER)
    s.tag = tag
    s.newest = (((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g
    s.offset = (((((h * 256 + i) * 256 + j) * 256 + k) * 256 + l) * 256 + m) * 256 + n
  elseif raw == '' then
    s.tag, s.newest, s.offset = 0, 0, 0
    return true
  elseif type(raw) == 'table' then -- another type
    local first, marks = read('ZRANGE', key, '0', decimal(MARKS - 1), 'WITHSCORES'), {}
    for i = 1, #first, 2 do
      marks[first[i]] = first[i + 1]
    end
    s.tag, s.offset, s.newest = TAG_LOG_ZSET, whole(marks[OFFSET]), negated(marks[NEWEST])
    s.longest, s.keep = negated(marks[LONGEST]), negated(marks[KEEP])
    return s.offset and s.newest and s.longest and s.keep
  else
    return false
  end
  return true
end

-- Sets s.now, the key's own time, and moves the offset if the clock has stepped back.
local function keep_time(s)
  local key = s.key
  s.now = clock + s.offset
  if s.now < s.newest then
    local step = s.newest - s.now
    s.offset = s.offset + step
    s.now = s.newest
    if s.tag == TAG_LOG_ZSET then
      call('ZADD', key, decimal(s.offset), OFFSET)
    else
      call('SETRANGE', key, '8', pack_time(s.offset))
    end
    if not virtual then
      -- The expiry was set on the clock before its step back, so move it as well.
      local left = call('PTTL', key)
      if left >= 0 then -- somebody may have removed the expiry
        call('PEXPIRE', key, decimal(math.max(1, left - floor(step / 1000))))
      end
    end
  end
end

-- The header of a charge made now to a key without an offset, which is the usual case. It is kept, because the keys
-- of a batch mostly have the same encoding.
local function header_of_now(tag)
  if tag ~= header_tag then
    local a, b, c, d, e, f, g = bytes_of(clock)
    header_tag, header_now = tag, char(tag, a, b, c, d, e, f, g, 0, 0, 0, 0, 0, 0, 0)
  end
  return header_now
end

local function header(tag, s)
  if s.offset ~= 0 or s.newest ~= clock then
    return char(tag) .. pack_time(s.newest) .. pack_time(s.offset)
  end
  return header_of_now(tag)
end

-- The expiry of a key that can no longer change a decision from time t of Redis's clock on (law 8). Returns the
-- option of SET and its argument. A virtual clock runs at another speed than Redis's expiry, so keys then merely
-- live long enough. The result is kept, because the keys of a batch mostly have the same expiry.
local expires, expires_text
local function expiry(t)
  if virtual then
    return 'PX', decimal(3600000 + math.max(0, divide_up(t - clock, 1000)))
  end
  if t ~= expires then
    expires, expires_text = t, format('%d', divide_up(t, 1000))
  end
  return 'PXAT', expires_text
end

-- Sets the expiry of a key that was written in place and matters until time t of Redis's clock.
local function expire(key, t)
  local option, ms = expiry(t)
  put(option == 'PX' and 'PEXPIRE' or 'PEXPIREAT', key, ms)
end

-- Writes a whole state that matters until the key's own time t. An algorithm may know from the state as it was read
-- how long the key lasts (s.lasts; 0: unknown). If the key already lasts until t, the state is written in place,
-- which takes well under half the time of also setting the expiry. If nothing was charged (units were given back),
-- the key keeps its expiry, unless that is too early for the state as it is now counted.
local function store(s, value, t)
  if s.charged then
    if s.lasts == t and #value == #s.raw then
      call('SETRANGE', s.key, '0', value)
    else
      call('SET', s.key, value, expiry(t - s.offset))
    end
    return
  end
  call('SET', s.key, value, 'KEEPTTL')
  if s.lasts < t and call('PTTL', s.key) * 1000 < t - s.now then
    expire(s.key, t - s.offset)
  end
end

-- Units of the past are charged whether or not they fit, but only up to MAX_LIMITS times a limit: so numbers stay
-- small, and no mistake locks a key for long.
local MAX_LIMITS = 4
local MAX_UNITS = MAX_LIMITS * 2 ^ 40 -- most units of a key: four times the largest limit

-- The first bytes of answers that are not states, and what is added to outcomes: see frame.lua.
local ANSWER_NUMBERS, ANSWER_ALLOWED, ANSWER_WITH_PARTS, ANSWER_CHARGED_MORE = 0, 255, '\254', 253
local OUTCOME_OFFSET = 3

-- The answer to a TAKE that does not fit: six numbers, of which the first is the outcome 0. free is negative if more
-- units count than the limit has. next_after is that of a cost of one unit if none is free. The value that plain has
-- read is forgotten: no general path follows that needs it, and another entry may write the key.
local function denial(free, reset, retry_after, next_after)
  seen_key = nil
  local retry = pack_time(retry_after)
  local next = free > 0 and NO_OFFSET or next_after == retry_after and retry or pack_time(next_after)
  return '\0\6\0\0\0\0\0\0\3' .. (free > 0 and pack_time(free) or NO_OFFSET) .. pack_time(reset) .. NO_OFFSET .. retry .. next
end

-- The position in a text of the record that begins with an id, or nil if there is none. Records of the given size
-- follow one another from position start_at on.
local function find_record(text, id, start_at, size)
  local from = find(text, id, start_at, true)
  while from and (from - start_at) % size > 0 do
    from = find(text, id, from + 1, true)
  end
  return from
end

-- Each algorithm's file stores a function here that creates the algorithm, under its code. An algorithm that a
-- batch does not use is not created, because that would be a large part of a small batch's cost. The algorithm is a
-- table of functions:
--
--   rule(quota, window, params)
--                         a rule, as a table; its parameters are packed from the given position on.
--                         It may have a function plain(key, cost, rule, may_deny), which decides
--                         the most common requests straight through: those for units that are
--                         free, for which it writes (by put), and, if may_deny is true, those
--                         that do not fit. It returns the answer (see frame.lua); or
--                         nothing if the request is not as simple, and then nothing was decided.
--                         It is called for costs of up to most_plain. The keys that a batch
--                         charges are often in the same state as each other: new, or without
--                         debt. What plain last wrote to such a key is kept in the rule: when
--                         (same_at), for which cost (same_cost), the value (same_value) and the
--                         answer (same_answer). A rule may also have a function
--                         plain_give(key, rule, stamp, charged, units, alike), which does
--                         what give does in the same way, or, if alike is given, what
--                         release does. It returns the units given back, the units free, and the
--                         time until the key is as if never used; or nothing if it has
--                         decided nothing, also because the key would be empty. And it may have
--                         a function plain_refund(key, units, rule), which answers a REFUND
--   read(s, rule)         reads the fields of a state that the algorithm wrote, whichever
--                         algorithm the rule has. Returns whether they can be right
--   look(s, rule)         takes over the fields read, or a state of another algorithm; sets
--                         s.free, the units free now
--   wait(s, rule, cost)   µs until cost units are free, if nothing else happens
--   turn(s, rule)         µs until leased units must have been spent; most algorithms have none
--   take(s, rule, cost)   charges cost units, at most s.free, in memory
--   give(s, rule, stamp, charged, units)
--                         gives back units of a charge of "charged" units made at stamp, in
--                         memory, as far as they still count; returns how many whole units
--                         that were, and sets s.changed if anything changed. It forgets
--                         nothing else: the clock may step back, and units that have left the
--                         window are then in it again
--   release(s, rule, stamps, charged, units, alike)
--                         gives back units of several charges, one after the other, in
--                         memory. An algorithm has it if give would give back other units in
--                         their place, or if doing them together takes less time; see
--                         release in hold.lua
--   charge(s, rule, stamps, units)
--                         charges units of the past, in memory: units[i] at stamps[i], the
--                         youngest first, as if they had been charged then, however much is
--                         free; returns how many still count, and sets s.changed if
--                         anything changed. For the key's clock the charge is still made
--                         now: units that have left the window by now are forgotten
--   recount(s, rule)      sets s.free after units were given back or charged in memory. Only
--                         algorithms have it whose give, charge and take find all they need
--                         in memory, also after each other
--   empty(s)              whether nothing is left to remember
--   write(s, rule)        writes the state as it is in memory
--   reset(s, rule)        µs until the key is as if never used
--   codes                 the code by tag, for an algorithm that reads no other algorithm's states
--   past(s, rule, most, add)
--                         from the state as read: calls add(stamp, units) for the units charged
--                         up to the newest charge, in groups, the newest first, with the latest
--                         time at which they can have been charged. It may leave out all but
--                         the newest "most" units; see inherit
local make = {}
local made = {}

local function algorithm(code)
  if made[code] == nil then
    made[code] = make[code]()
  end
  return made[code]
end

-- The code of the algorithm that wrote a state, by tag.
local code_of = {
  [TAG_LOG] = SLIDING_LOG, [TAG_LONG_LOG] = SLIDING_LOG, [TAG_COUNTER] = SLIDING_COUNTER, [TAG_GCRA] = GCRA,
  [TAG_FIXED_WINDOW] = FIXED_WINDOW, [TAG_LOG_ZSET] = SLIDING_LOG_ZSET,
}

-- Reads the rest of a state, and returns whether this version can have written it. The offset is no larger than the
-- time of the newest charge: that time is a clock's time plus the offset.
local function sound(s, rule)
  local code = (rule.algorithm.codes or code_of)[s.tag]
  return code and s.newest < LATEST and s.offset <= s.newest and algorithm(code).read(s, rule)
end

-- When a rule's algorithm changes, the new algorithm starts with the units that the old one may have granted in the
-- last window, each at the latest possible time. So the change never grants anything twice.
--
-- The result is a table. units is their number, at most the newest "most" of them. They come in groups, 1 being the
-- newest; groups is the number of groups. For group g, at[g] is the stamp, each[g] is the number of units in it, and
-- up_to[g] that in it and in the newer groups. So a change costs about the same however many units there are.
--
-- The rule may have the smaller limit of two rules in force side by side. While that limit is full, it grants
-- nothing; but it may give units back, or charge units that were already used. So most algorithms take over more
-- units than fill their limit, MAX_LIMITS times as many: otherwise the larger rule would grant the rest again.
local function inherit(s, rule, most)
  local from = { units = 0, groups = 0, at = {}, each = {}, up_to = {} }
  local too_old = s.newest - (rule.window > 0 and rule.window or s.newest + 1)
  algorithm(code_of[s.tag]).past(s, rule, most, function(stamp, units)
    units = math.min(units, most - from.units)
    if units > 0 and (rule.k or stamp > too_old) then -- counters go by sub-windows
      local g = from.groups + 1
      from.units, from.groups = from.units + units, g
      from.at[g], from.each[g], from.up_to[g] = stamp, units, from.units
    end
  end)
  return from
end

-- The size of groups of inherited units that are not counted by sub-window. There are at most 64 groups.
local function group_size(units)
  return math.max(1, math.ceil(units / 64))
end

-- Returns how many of the inherited units were charged at t or later.
local function since(t, from)
  for g = from.groups, 1, -1 do
    if from.at[g] >= t then
      return from.up_to[g]
    end
  end
  return 0
end
