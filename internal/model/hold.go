package model

import "slices"

// HoldTerms are the terms of a hold, as in an entry; Life is in µs.
type HoldTerms struct {
	ID   uint64
	Life int64
	// GivesBack means that the units are given back at the hold's end, unless the hold was settled.
	GivesBack bool
}

// hold has units that were charged for work whose cost is known only when it is over. Its times are the key's own.
type hold struct {
	id            uint64
	givesBack     bool // at its end
	charged, ends int64
	units         int64 // 0: the units were given back
}

// isDue reports whether the hold must be given back or forgotten at t.
func (h *hold) isDue(t int64) bool {
	return h.givesBack && h.ends <= t || h.ends+lateHold <= t
}

const (
	// longestHold is the longest time that a hold lasts without being extended. lateHold is how long after its end
	// it may be settled. maxHolds is the largest number of holds of a key.
	longestHold = 86_400_000_000
	lateHold    = 600_000_000
	maxHolds    = 1000
)

func (k *key) GiveBack(now int64) {
	if t := k.clock.read(now); slices.ContainsFunc(k.holds, func(h hold) bool { return h.isDue(t) }) {
		k.endHolds(t, false)
	}
}

// endHolds gives back the units of holds that have ended by t and are to be given back at their end. Holds that
// ended long ago are forgotten. If there is no room for more, all holds that have ended are forgotten.
func (k *key) endHolds(t int64, full bool) {
	units, changed := k.current(), false
	kept := make([]hold, 0, len(k.holds))
	for _, h := range k.holds {
		if h.givesBack && h.ends <= t {
			_, given := k.release(units, t, h.charged, h.units, h.units)
			changed = changed || given
			h.givesBack, h.ends, h.units = false, t, 0
		}
		if h.ends > t || h.ends+lateHold > t && !full {
			kept = append(kept, h)
		}
	}
	k.holds = kept
	if changed {
		k.give(units)
	}
}

// release gives back units of a charge, if the key still knows of it: exactly these units, as if they had never
// been charged.
func (k *key) release(units tally, t, stamp, charged, amount int64) (given int64, changed bool) {
	if amount == 0 || !k.clock.used || stamp > k.clock.newest {
		return 0, false
	}
	if log, ok := units.(*slidingLog); ok {
		return log.release(t, stamp, amount)
	}
	return units.refund(t, stamp, charged, amount)
}

// give stores the units that are left after some were given back. A key without units is as if it had never been
// used.
func (k *key) give(units tally) {
	k.units = units
	if empty(units, k.clock.newest) {
		k.vanish()
	}
}

func (k *key) Hold(now, cost int64, upTo bool, terms HoldTerms) Outcome {
	t := k.clock.read(now)
	if len(k.holds) >= maxHolds || slices.ContainsFunc(k.holds, func(h hold) bool { return h.isDue(t) }) {
		k.endHolds(t, len(k.holds) >= maxHolds)
	}
	if len(k.holds) >= maxHolds {
		out := k.Peek(now, 1)
		first := slices.MinFunc(k.holds, func(a, b hold) int { return int(a.ends - b.ends) }).ends
		out.Allowed, out.NextAfter = false, 0
		out.RetryAfter = max(0, min(longestHold, first-out.Stamp))
		return out
	}
	ask := k.Decide
	if upTo {
		ask = k.TakeUpTo
	}
	out := ask(now, cost)
	if out.Allowed {
		k.holds = append(k.holds, hold{terms.ID, terms.GivesBack, out.Stamp, out.Stamp + terms.Life, out.Granted})
	}
	return out
}

func (k *key) Settle(now, used int64, id uint64) Outcome {
	t := k.clock.read(now)
	h, found := hold{charged: t}, id == 0
	if i := k.findHold(id); i >= 0 {
		h, found = k.holds[i], true
		k.holds = slices.Delete(slices.Clone(k.holds), i, i+1)
	}
	out := Outcome{Allowed: found}
	units, changed := k.current(), false
	switch {
	case !found:
	case used < h.units:
		if out.Granted, changed = k.release(units, t, h.charged, h.units, h.units-used); changed {
			k.give(units)
		}
	case used > h.units:
		if out.Granted, changed = units.chargePast(t, []Past{{Units: used - h.units}}); changed {
			k.charged(units, t)
		}
	}
	return k.withState(now, out)
}

func (k *key) Extend(now int64, terms HoldTerms) Outcome {
	t := k.clock.read(now)
	i := k.findHold(terms.ID)
	out := Outcome{}
	if i >= 0 && k.holds[i].units > 0 {
		h := &k.holds[i]
		h.ends, h.givesBack = max(h.ends, t+terms.Life), terms.GivesBack
		out.Allowed, out.Life = true, min(h.ends-t, longestHold)
	}
	return k.withState(now, out)
}

// withState adds the state of the key to an outcome.
func (k *key) withState(now int64, out Outcome) Outcome {
	t := k.clock.read(now)
	units := k.current()
	out.Stamp, out.Remaining, out.ResetAfter = t, units.free(t), units.reset(t)
	return out
}

func (k *key) findHold(id uint64) int {
	return slices.IndexFunc(k.holds, func(h hold) bool { return h.id == id })
}
