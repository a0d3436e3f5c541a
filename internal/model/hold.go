package model

import "slices"

// HoldTerms are those of a hold, as an entry has them; Life is in µs.
type HoldTerms struct {
	ID   uint64
	Life int64
	// GivesBack: what is held is given back at its end, unless it was settled.
	GivesBack bool
}

// hold is units that were charged for something whose cost is known when it is over. Its times are
// the key's own.
type hold struct {
	id            uint64
	givesBack     bool // at its end
	charged, ends int64
	units         int64 // 0: they were given back
}

// isDue reports whether something is to be done about the hold at t.
func (h *hold) isDue(t int64) bool {
	return h.givesBack && h.ends <= t || h.ends+lateHold <= t
}

const (
	// longestHold is the longest that a hold lasts without being extended, lateHold for how long after
	// its end it may be settled, mostHolds how many there can be of a key.
	longestHold = 86_400_000_000
	lateHold    = 600_000_000
	mostHolds   = 1000
)

func (k *key) GiveBack(now int64) {
	if t := k.clock.read(now); slices.ContainsFunc(k.holds, func(h hold) bool { return h.isDue(t) }) {
		k.endHolds(t, false)
	}
}

// endHolds gives back what is held until t or before and is to be given back at its end. Holds
// that were over long ago are forgotten, and if there is no room for more, all that are over.
func (k *key) endHolds(t int64, full bool) {
	units, changed := k.current(t), false
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

// release gives back units of a charge, if the key still knows of it: those very units, as if
// they had never been charged.
func (k *key) release(units tally, t, stamp, charged, amount int64) (given int64, changed bool) {
	if amount == 0 || !k.clock.used || stamp > k.clock.newest {
		return 0, false
	}
	if log, ok := units.(*slidingLog); ok {
		return log.release(t, stamp, amount)
	}
	return units.refund(t, stamp, charged, amount)
}

// give keeps what is left after units were given back. A key that holds none is as if never used.
func (k *key) give(units tally) {
	k.units = units
	if empty(units, k.clock.newest) {
		k.vanish()
	}
}

func (k *key) Hold(now, cost int64, upTo bool, terms HoldTerms) Outcome {
	t := k.clock.read(now)
	if len(k.holds) >= mostHolds || slices.ContainsFunc(k.holds, func(h hold) bool { return h.isDue(t) }) {
		k.endHolds(t, len(k.holds) >= mostHolds)
	}
	if len(k.holds) >= mostHolds {
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
	units, changed := k.current(t), false
	switch {
	case !found:
	case used < h.units:
		if out.Granted, changed = k.release(units, t, h.charged, h.units, h.units-used); changed {
			k.give(units)
		}
	case used > h.units:
		if out.Granted, changed = units.chargePast(t, []Past{{Units: used - h.units}}); changed {
			k.units = units
			k.clock.charged(t)
		}
	}
	return k.tell(now, out)
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
	return k.tell(now, out)
}

// tell adds to an outcome what the key is like.
func (k *key) tell(now int64, out Outcome) Outcome {
	t := k.clock.read(now)
	units := k.current(t)
	out.Stamp, out.Remaining, out.ResetAfter = t, units.free(t), units.reset(t)
	return out
}

func (k *key) findHold(id uint64) int {
	return slices.IndexFunc(k.holds, func(h hold) bool { return h.id == id })
}
