-- The sliding log as a sorted set, which is the common encoding elsewhere. It is larger and slower than the ring,
-- but it can be inspected with ZRANGE, and the ring is compared with it.
--
-- Part of the decision script; numbers.lua lists the parts in their order.
--
--   takes  numbers; of state.lua the marks, expire, decimal, make; sliding_log
--   gives  make[SLIDING_LOG_ZSET]
--
-- There is a member for each unit, scored with its time stamp. The member's name is the stamp and a number that
-- tells units of the same µs apart. The fields of a string's header are separate members, the marks, with scores
-- below any stamp: for that reason all scores but the offset's are negative. (A stamp is at least Redis's time plus
-- the offset, so the offset is no larger.)
--
--   tag 6 (not stored: it is the type, and the member OFFSET)

local MAX_LOG_ZSET_UNITS = 5000 -- of the largest log

make[SLIDING_LOG_ZSET] = function()
  local zset = { most = MAX_LOG_ZSET_UNITS }

  function zset.read(s)
    if type(s.raw) ~= 'table' then -- a string that begins with the tag of a sorted set
      return false
    end
    s.count = call('ZCARD', s.key) - MARKS
    return s.longest <= LONGEST_WINDOW and s.keep <= MAX_LOG_ZSET_UNITS and s.count <= s.keep
  end

  function zset.stamp(s, i)
    local score = tonumber(call('ZRANGE', s.key, decimal(MARKS + i), decimal(MARKS + i), 'WITHSCORES')[2])
    return floor(math.max(0, math.min(s.base, score)))
  end

  -- In a damaged state even the scores of marks may be above the threshold.
  function zset.expired(s, threshold)
    return math.max(0, call('ZCOUNT', s.key, '-inf', decimal(threshold)) - MARKS)
  end

  local function mark(s)
    call(
      'ZADD', s.key,
      decimal(s.offset), OFFSET, '-' .. decimal(s.newest), NEWEST,
      '-' .. decimal(s.longest), LONGEST, '-' .. decimal(s.keep), KEEP
    )
  end

  -- Removes n units from unit number "from" on; the oldest is number 0.
  local function drop(s, from, n)
    if n > 0 then
      call('ZREMRANGEBYRANK', s.key, decimal(MARKS + from), decimal(MARKS + from + n - 1))
    end
  end

  -- Adds n units of one time stamp.
  local function add(s, stamp, n)
    local score = decimal(stamp)
    local last = call('ZREVRANGEBYSCORE', s.key, score, score, 'LIMIT', '0', '1')[1]
    local number = last and unpack_int(last, 8, 4) or -1
    local name, more = pack_int(stamp, 7), {}
    for i = 1, n do
      more[#more + 1] = score
      more[#more + 1] = name .. pack_int(number + i, 4)
      if i == n or #more == 200 then -- many at once take a fraction of the time
        call('ZADD', s.key, unpack(more))
        more = {}
      end
    end
  end

  -- Adds units of the past, the youngest first, until there are s.keep units, which bounds the work.
  local function add_past(s)
    local stamps, units, youngest = s.past.stamps, s.past.units, zset.log.youngest(s)
    s.base = s.newest -- from here on the stored units include units of the past
    for i = 1, #stamps do
      local younger = s.count - zset.log.up_to(s, stamps[i])
      local some = math.min(units[i], math.max(0, s.keep - younger))
      add(s, stamps[i], some)
      s.count = s.count + some
    end
    drop(s, 0, math.max(zset.log.up_to(s, s.now - s.longest), s.count - s.keep))
    mark(s)
    expire(s.key, youngest + s.longest - s.offset)
  end

  function zset.write(s, rule)
    if s.tag ~= TAG_LOG_ZSET then
      if s.is_zset then -- while its slot moves, a key that is deleted cannot be written any more
        call('ZREMRANGEBYRANK', s.key, decimal(MARKS), '-1')
      else
        call('DEL', s.key)
      end
      local inherited = s.inherited
      if inherited then
        for g = inherited.groups, 1, -1 do
          add(s, inherited.at[g], inherited.each[g])
        end
        s.inherited = false
      end
      mark(s)
      expire(s.key, s.newest + s.longest - s.offset)
    end
    if s.past then
      add_past(s)
    elseif s.given > 0 then
      local ranges = s.released or { { from = s.left, units = s.given } }
      for i = #ranges, 1, -1 do -- from the end, so that the units of the other ranges keep their ranks
        drop(s, ranges[i].from, ranges[i].units)
      end
      mark(s)
    else
      drop(s, 0, zset.log.unneeded(s, rule))
      add(s, s.now, s.added)
      mark(s)
      expire(s.key, s.newest + s.longest - s.offset)
    end
  end

  return sliding_log(zset)
end
