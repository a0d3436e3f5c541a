package model

import "math"

// Slots is one key of a concurrency limit. Holders are processes. Each request names its holder and its limit,
// since both may differ from one request to the next.
type Slots struct {
	clock clock
	lines []line // in order of arrival
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

// alive returns the lines that count at t.
func (s *Slots) alive(t int64) (alive []line) {
	for _, l := range s.lines {
		if l.till > t {
			alive = append(alive, l)
		}
	}
	return alive
}

func find(lines []line, holder string) int {
	for i := range lines {
		if lines[i].holder == holder {
			return i
		}
	}
	return -1
}

// free returns how many units h could acquire, given the lines that count.
func (h Holder) free(lines []line) int64 {
	held := int64(0)
	for _, l := range lines {
		held += l.units
	}
	if find(lines, h.Name) < 0 && len(lines) >= maxHolders {
		return 0
	}
	return max(0, h.Quota-held)
}

// Acquire gives h the given number of units if they are free.
func (s *Slots) Acquire(now int64, h Holder, units int64) Outcome {
	return s.acquire(now, h, units, units)
}

// AcquireUpTo gives h as many of the units as are free.
func (s *Slots) AcquireUpTo(now int64, h Holder, units int64) Outcome {
	return s.acquire(now, h, 1, min(units, h.free(s.alive(s.clock.read(now)))))
}

// Peek answers as Acquire would, but gives nothing.
func (s *Slots) Peek(now int64, h Holder, units int64) Outcome {
	return s.acquire(now, h, units, 0)
}

func (s *Slots) acquire(now int64, h Holder, needed, units int64) Outcome {
	t := s.clock.read(now)
	lines := s.alive(t)
	out := Outcome{Stamp: t, Allowed: needed <= h.free(lines)}
	switch {
	case out.Allowed && units > 0:
		out.Granted = units
		if i := find(lines, h.Name); i >= 0 {
			units += lines[i].units
		}
		lines = s.set(t, lines, h, units)
	case !out.Allowed:
		out.RetryAfter = h.wait(lines, t, needed)
		if h.free(lines) == 0 {
			out.NextAfter = h.wait(lines, t, 1)
		}
	}
	return withSlotState(out, t, h, lines)
}

// wait returns the smallest w such that the units are free at t+w, if no holder is heard of again.
func (h Holder) wait(lines []line, t, units int64) int64 {
	soonest := int64(math.MaxInt64)
	for _, l := range append(lines[:len(lines):len(lines)], line{till: t}) {
		at := &Slots{lines: lines}
		if h.free(at.alive(l.till)) >= units {
			soonest = min(soonest, l.till-t)
		}
	}
	return soonest
}

// set sets the number of h's units, from now on.
func (s *Slots) set(t int64, lines []line, h Holder, units int64) []line {
	i := find(lines, h.Name)
	switch {
	case units == 0:
		lines = append(lines[:i:i], lines[i+1:]...)
	case i >= 0:
		lines[i].units, lines[i].till = units, max(lines[i].till, t+h.TTL)
	default:
		lines = append(lines, line{h.Name, t + h.TTL, units})
	}
	s.clock.charged(t)
	s.store(lines)
	return lines
}

// store keeps the lines that count. A key without such lines is deleted.
func (s *Slots) store(lines []line) {
	s.lines = append([]line(nil), lines...)
	if len(lines) == 0 {
		s.clock = clock{}
	}
}

func withSlotState(out Outcome, t int64, h Holder, lines []line) Outcome {
	out.Remaining = h.free(lines)
	for _, l := range lines {
		out.ResetAfter = max(out.ResetAfter, l.till-t)
	}
	return out
}

// Release takes units from h, at most as many as it has.
func (s *Slots) Release(now int64, h Holder, units int64) Outcome {
	t := s.clock.read(now)
	lines := s.alive(t)
	out := Outcome{Allowed: true, Stamp: t}
	if i := find(lines, h.Name); i >= 0 {
		out.Granted = min(units, lines[i].units)
		if lines[i].units -= out.Granted; lines[i].units == 0 {
			lines = append(lines[:i:i], lines[i+1:]...)
		}
		if s.store(lines); len(lines) == 0 {
			out.Stamp = now // the key is as if it had never been used
		}
	}
	return withSlotState(out, t, h, lines)
}

// Renew records that h is alive; Granted is the number of its units.
func (s *Slots) Renew(now int64, h Holder) Outcome {
	t := s.clock.read(now)
	known := int64(0)
	if i := find(s.alive(t), h.Name); i >= 0 {
		known = s.alive(t)[i].units
	}
	return s.State(now, h, known)
}

// State sets the number of h's units, whether or not they are free; Granted is the number known before.
func (s *Slots) State(now int64, h Holder, units int64) Outcome {
	t := s.clock.read(now)
	lines := s.alive(t)
	out := Outcome{Allowed: true, Stamp: t}
	i := find(lines, h.Name)
	if i >= 0 {
		out.Granted = lines[i].units
	}
	if (units > 0 || i >= 0) && (i >= 0 || len(lines) < maxHolders) {
		if lines = s.set(t, lines, h, units); len(lines) == 0 {
			out.Stamp = now // the key is as if it had never been used
		}
	}
	return withSlotState(out, t, h, lines)
}

// Forget makes the key as if it had never been used.
func (s *Slots) Forget(now int64, h Holder) Outcome {
	*s = Slots{}
	return Outcome{Allowed: true, Remaining: h.Quota, Stamp: now}
}

// Clone returns an independent copy.
func (s *Slots) Clone() *Slots {
	return &Slots{s.clock, append([]line(nil), s.lines...)}
}
