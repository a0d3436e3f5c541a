package local

import (
	"math"
	"time"
)

// Doubt has Redis told how many units are held of certain keys: it may have lost its memory.
func (t *Slots[O]) Doubt(now int64, which func(HeldKey) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.of {
		if which(h.HeldKey) {
			h.doubts(now)
		}
	}
}

// Statement is what Redis is told of a key: that the process is alive, or, if Absolute, how many
// units it holds.
type Statement[O any] struct {
	Held     *Held[O]
	Owner    O
	TTL      time.Duration
	Units    int64
	Absolute bool
	changes  uint64
	quiet    bool // no entry was on its way
}

// Statements are what Redis is to be told now: of keys in doubt how many units are held, once
// nothing is on its way that could change that; and if renew is set, of all others that the
// process is alive. Each must be Answered or Failed.
func (t *Slots[O]) Statements(now int64, renew bool, reachable func(HeldKey) bool) (all []Statement[O]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.of {
		h.lapse(now)
		due := renew && h.units > 0
		if h.doubt {
			due = !h.asked && h.flying == 0 && now >= h.since
		}
		if due && reachable(h.HeldKey) {
			h.asked = h.doubt
			all = append(all, Statement[O]{h, h.owner, h.ttl, h.units, h.doubt, h.changes, h.flying == 0})
		}
		h.clean(now)
	}
	return all
}

// Answered takes note that Redis was told, knew of so many units before, and keeps those of the
// statement until till.
func (s *Statement[O]) Answered(now, till, known, free int64) {
	h := s.Held
	h.table.mu.Lock()
	defer h.table.mu.Unlock()
	h.free, h.flown = free, max(h.flown, now)
	if !s.Absolute {
		same := s.quiet && h.flying == 0 && h.changes == s.changes
		if same && known != h.units {
			h.doubts(now)
		}
		if h.lapse(now); known > 0 && (!same || known == h.units) && !h.kept {
			h.extend(now, till)
		}
		return
	}
	h.asked = false
	if h.kept { // from now on Redis knows
		h.kept = false
		h.till.Store(till)
	} else {
		h.extend(now, till)
	}
	h.lapse(now)
	if h.changes == s.changes {
		h.doubt = false
		close(h.over)
	}
	h.clean(now)
}

// Failed takes note that Redis may not have been told; and that nothing may be told before since.
func (s *Statement[O]) Failed(now, since int64) {
	h := s.Held
	h.table.mu.Lock()
	defer h.table.mu.Unlock()
	h.flown = max(h.flown, since)
	if s.Absolute {
		h.asked = false
		h.since = max(h.since, since)
		h.clean(now)
	}
}

// Next is when something is to be done next: a slot lapses, or Redis may be told of a doubt.
// math.MaxInt64 if nothing is.
func (t *Slots[O]) Next(reachable func(HeldKey) bool) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := int64(math.MaxInt64)
	for _, h := range t.of {
		if h.units > 0 {
			next = min(next, h.till.Load())
		}
		if h.doubt && !h.asked && h.flying == 0 && reachable(h.HeldKey) {
			next = min(next, h.since)
		}
	}
	return next
}
