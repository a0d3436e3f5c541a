-- Leases: units charged in advance for one process, which then spends them by itself until the lease ends. A second
-- key in the same slot lists the leases of the first key, so that their sum over all processes never exceeds its
-- bound:
--
--   tag 7, then for each lease: id (8 bytes), ends (7, the key's own time), units (7)
--
-- A lease counts in full until it ends, or until its process reports that it is over, because only the process
-- knows how much of it was spent. The first key's state does not depend on this list: leased units are charged
-- there, spent or not. FORGET does not remove leases, since processes continue to spend them.
--
-- Part of the decision script; numbers.lua lists the parts in their order.
--
--   takes  numbers; of state.lua expiry, MAX_UNITS, TAG_LEASES
--   gives  grant_lease(e, s, rule), which charges the units of a LEASE

local LEASE_BYTES = 22
local MAX_LEASES = 64
local LONGEST_LEASE = 1000000 -- µs

-- Charges up to e.cost units for the lease e.id, in memory, and returns how many. Sets e.result to the lease's
-- duration. The lease e.over ends.
--
-- It grants at most half of the units that may still be leased, and half of the units that are free beyond the
-- reserve. So n processes that all want more get 1/(n+1) each, and when the limit is nearly used up, its last units
-- are decided one by one.
local function grant_lease(e, s, rule)
  local raw = read('GET', e.leases) or char(TAG_LEASES)
  if type(raw) == 'table' or byte(raw, 1, 1) ~= TAG_LEASES or (#raw - 1) % LEASE_BYTES > 0 or #raw > 1 + MAX_LEASES * LEASE_BYTES then
    return 0 -- not ours, or of a later version, or damaged
  end
  local kept, out, latest, changed = {}, 0, 0, false
  for from = 2, #raw, LEASE_BYTES do
    local id, ends, units = sub(raw, from, from + 7), unpack_time(raw, from + 8), unpack_time(raw, from + 15)
    if units > MAX_UNITS then
      return 0
    elseif id == e.over then
      changed = true
    elseif ends > s.now then
      if ends > s.now + LONGEST_LEASE then
        -- The clock stepped back while the key did not exist.
        ends, changed = s.now + LONGEST_LEASE, true
      end
      kept[#kept + 1] = id .. pack_time(ends) .. pack_time(units)
      out, latest = out + units, math.max(latest, ends)
    end
  end

  local units = math.min(e.cost, floor((s.free - e.reserve) / 2), math.ceil((e.most - out) / 2))
  if units < 1 or #kept >= MAX_LEASES then
    units = 0
  else
    e.result = e.life
    if rule.algorithm.turn then
      e.result = math.min(e.life, rule.algorithm.turn(s, rule))
    end
    latest, changed = math.max(latest, s.now + e.result), true
    kept[#kept + 1] = e.id .. pack_time(s.now + e.result) .. pack_time(units)
  end

  -- The leases are written before the charge: if only one of the two is written, it must be the leases.
  if changed and #kept == 0 then
    call('DEL', e.leases)
  elseif changed then
    call('SET', e.leases, char(TAG_LEASES) .. table.concat(kept), expiry(latest - s.offset))
  end
  if units > 0 then
    rule.algorithm.take(s, rule, units)
    s.newest, s.charged, s.changed = s.now, true, true
  end
  return units
end
