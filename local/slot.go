package local

import (
	"math"
	"sync/atomic"
)

// Slot is a number of units of a key that are held together. The zero Slot is not held. A Slot must not
// be copied after it has been granted.
type Slot[O any] struct {
	held  *Held[O]
	units int64
	place int  // position among the key's slots, from 1; 0 if the slot is no longer held
	timed bool // see EndInTime
	lost  atomic.Bool
	ended chan struct{} // closed when the slot is lost or given back; nil until Ended is called
}

// EndInTime makes the slot end when its time in Redis is over, even if other slots of its key are kept
// (see [Slots.Keep]). It must be called before the slot is granted.
func (s *Slot[O]) EndInTime() { s.timed = true }

// till returns the time until which the slot is valid.
func (s *Slot[O]) till() int64 {
	if s.held.kept.Load() && !s.timed {
		return math.MaxInt64
	}
	return s.held.till.Load()
}

// Release gives a slot back. If entered is true, the caller must send an entry at once that has no
// effect after until, and h was entered as by [Slots.Enter]. Otherwise the slot was no longer held, or a
// statement will report to Redis how many units are held. A statement is used if the key is in doubt, if the
// slots are kept without Redis, or if send is false. It is also used if the slots may expire before
// until: the entry could then take the units from a new record, of slots that were acquired after the old
// record had expired.
func (s *Slot[O]) Release(now, until int64, send bool) (h *Held[O], units int64, entered bool) {
	if s.held == nil {
		return nil, 0, false
	}
	t := s.held.table
	t.mu.Lock()
	defer t.mu.Unlock()
	h = s.held
	h.lapse(now)
	if s.place == 0 {
		return h, 0, false
	}
	h.remove(s)
	if !send || h.doubt || until >= h.till.Load() {
		h.doubts(now)
		return h, s.units, false
	}
	h.inFlight++
	return h, s.units, true
}

// remove ends a slot in this process. The lock must be held.
func (h *Held[O]) remove(s *Slot[O]) {
	last := h.slots[len(h.slots)-1]
	h.slots[s.place-1], last.place = last, s.place
	h.slots[len(h.slots)-1] = nil
	h.slots = h.slots[:len(h.slots)-1]
	h.units -= s.units
	h.rule().Units -= s.units
	h.least = min(h.least, h.units)
	if s.timed {
		h.timed--
	}
	h.changes++
	s.lost.Store(true)
	s.place = 0
	if s.ended != nil {
		close(s.ended)
	}
}

// Held reports whether the slot is held at now. The caller must read the clock before it calls Held. The
// result is correct even directly after this process was paused, when no timer has fired yet. A slot that
// was reported as lost is never held again.
func (s *Slot[O]) Held(now int64) bool {
	h := s.held
	switch {
	case h == nil:
		return false
	case now < s.till():
		return !s.lost.Load() // when the time is extended, slots that were lost before have been marked
	}
	h.table.mu.Lock()
	defer h.table.mu.Unlock()
	h.lapse(now) // an answer that was received before now may extend the time later
	return !s.lost.Load()
}

// Ended returns a channel that is closed when the slot is lost or given back.
func (s *Slot[O]) Ended() <-chan struct{} {
	if s.held != nil {
		s.held.table.mu.Lock()
		defer s.held.table.mu.Unlock()
	}
	if s.ended == nil {
		s.ended = make(chan struct{})
		if s.place == 0 {
			close(s.ended)
		}
	}
	return s.ended
}
