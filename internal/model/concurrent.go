package model

import "math"

// Slots is one key of a concurrency limit. Holders are processes. Each request names its holder and its limit,
// since both may differ from one request to the next.
type Slots struct {
	clock clock
	held  holdings
}

// holdings is what the holders of a key have.
type holdings struct {
	lines []line // in order of arrival
	// No line ends before first, and all have ended at last. Both may be those of lines that are gone, whose units were
	// released, until the time first has come.
	first, last int64
}

// line has the units of one holder. It counts until the holder has not been heard of for its TTL, at the key's own
// time.
type line struct {
	holder      string
	till, units int64
}

// Holder is the process that asks, the limit under which it asks, and how long (in µs) its units count from then
// on.
type Holder struct {
	Name       string
	Quota, TTL int64
}

// maxHolders is the largest number of holders of a key.
const maxHolders = 1000

// at returns what counts at t, as a copy.
func (h holdings) at(t int64) holdings {
	if len(h.lines) > 0 && t < h.first {
		h.lines = append([]line(nil), h.lines...)
		return h
	}
	alive := holdings{first: math.MaxInt64}
	for _, l := range h.lines {
		if l.till > t {
			alive.lines = append(alive.lines, l)
			alive.first, alive.last = min(alive.first, l.till), h.last
		}
	}
	return alive
}

// of returns the position of the holder's line, or -1.
func (h holdings) of(holder string) int {
	for i := range h.lines {
		if h.lines[i].holder == holder {
			return i
		}
	}
	return -1
}

// free returns how many units the holder could acquire.
func (h holdings) free(holder Holder) int64 {
	units := int64(0)
	for _, l := range h.lines {
		units += l.units
	}
	if h.of(holder.Name) < 0 && len(h.lines) >= maxHolders {
		return 0
	}
	return max(0, holder.Quota-units)
}

// set sets the number of the holder's units, from t on.
func (h holdings) set(t int64, holder Holder, units int64) holdings {
	i, till := h.of(holder.Name), t+holder.TTL
	switch {
	case units == 0:
		h.lines = append(h.lines[:i:i], h.lines[i+1:]...)
		return h
	case i >= 0:
		till = max(till, h.lines[i].till)
		h.lines[i].units, h.lines[i].till = units, till
	default:
		h.lines = append(h.lines, line{holder.Name, till, units})
	}
	h.first, h.last = min(h.first, till), max(h.last, till)
	return h
}

// Acquire gives h the given number of units if they are free.
func (s *Slots) Acquire(now int64, h Holder, units int64) Outcome {
	return s.acquire(now, h, units, units)
}

// AcquireUpTo gives h as many of the units as are free.
func (s *Slots) AcquireUpTo(now int64, h Holder, units int64) Outcome {
	return s.acquire(now, h, 1, min(units, s.held.at(s.clock.read(now)).free(h)))
}

// Peek answers as Acquire would, but gives nothing.
func (s *Slots) Peek(now int64, h Holder, units int64) Outcome {
	return s.acquire(now, h, units, 0)
}

func (s *Slots) acquire(now int64, h Holder, needed, units int64) Outcome {
	t := s.clock.read(now)
	held := s.held.at(t)
	free := held.free(h)
	out := Outcome{Stamp: t, Allowed: needed <= free}
	switch {
	case out.Allowed && units > 0:
		out.Granted = units
		if i := held.of(h.Name); i >= 0 {
			units += held.lines[i].units
		}
		held = held.set(t, h, units)
		s.clock.charged(t)
		s.store(held)
	case !out.Allowed && len(held.lines) > 0: // units may be released at any time, and come back by themselves at "first"
		if out.RetryAfter = held.first - t; free == 0 {
			out.NextAfter = out.RetryAfter
		}
	}
	return withSlotState(out, t, h, held)
}

// store keeps what is held. A key of which nothing is held is deleted.
func (s *Slots) store(h holdings) {
	s.held = h
	if len(h.lines) == 0 {
		*s = Slots{}
	}
}

func withSlotState(out Outcome, t int64, h Holder, held holdings) Outcome {
	out.Remaining = held.free(h)
	if len(held.lines) > 0 {
		out.ResetAfter = held.last - t
	}
	return out
}

// Release takes units from h, at most as many as it has.
func (s *Slots) Release(now int64, h Holder, units int64) Outcome {
	t := s.clock.read(now)
	held := s.held.at(t)
	out := Outcome{Allowed: true, Stamp: t}
	if i := held.of(h.Name); i >= 0 {
		out.Granted = min(units, held.lines[i].units)
		if held.lines[i].units -= out.Granted; held.lines[i].units == 0 {
			held.lines = append(held.lines[:i:i], held.lines[i+1:]...)
		}
		if s.store(held); len(held.lines) == 0 {
			out.Stamp = now // the key is as if it had never been used
		}
	}
	return withSlotState(out, t, h, held)
}

// Renew records that h is alive; Granted is the number of its units.
func (s *Slots) Renew(now int64, h Holder) Outcome {
	known, held := int64(0), s.held.at(s.clock.read(now))
	if i := held.of(h.Name); i >= 0 {
		known = held.lines[i].units
	}
	return s.State(now, h, known)
}

// State sets the number of h's units, whether or not they are free; Granted is the number known before.
func (s *Slots) State(now int64, h Holder, units int64) Outcome {
	t := s.clock.read(now)
	held := s.held.at(t)
	out := Outcome{Allowed: true, Stamp: t}
	i := held.of(h.Name)
	if i >= 0 {
		out.Granted = held.lines[i].units
	}
	if (units > 0 || i >= 0) && (i >= 0 || len(held.lines) < maxHolders) {
		held = held.set(t, h, units)
		s.clock.charged(t)
		if s.store(held); len(held.lines) == 0 {
			out.Stamp = now // the key is as if it had never been used
		}
	}
	return withSlotState(out, t, h, held)
}

// Forget makes the key as if it had never been used.
func (s *Slots) Forget(now int64, h Holder) Outcome {
	*s = Slots{}
	return Outcome{Allowed: true, Remaining: h.Quota, Stamp: now}
}

// Clone returns an independent copy.
func (s *Slots) Clone() *Slots {
	return &Slots{s.clock, s.held.at(math.MinInt64)}
}
