package local

import "sync/atomic"

// Slot is a number of units of a key that are held together. The zero Slot is not held. It must not
// be copied after it has been granted.
type Slot[O any] struct {
	held  *Held[O]
	units int64
	place int  // among the key's slots, from 1; 0 if it is no longer held
	timed bool // see EndInTime
	lost  atomic.Bool
	ended chan struct{} // closed when it is lost or given back; nil until Ended is called
}

// EndInTime lets the slot end when its time in Redis is over, even if others of its key are kept (see
// [Slots.Keep]). It must be called before the slot is granted.
func (s *Slot[O]) EndInTime() { s.timed = true }

// till is the time until which the slot is valid.
func (s *Slot[O]) till() int64 {
	if s.timed {
		return s.held.sure.Load()
	}
	return s.held.till.Load()
}

// end ends a slot. The lock is held.
func (s *Slot[O]) end() {
	s.lost.Store(true)
	s.place = 0
	if s.ended != nil {
		close(s.ended)
	}
}

// Release gives a slot back. told reports whether the caller is to tell Redis at once, by an entry that
// has no effect after until; then h was entered as by [Slots.Enter]. Otherwise, because the slot was no
// longer held, the key is in doubt, or tell is false, a statement will tell Redis how many units are
// held. That is also so if the slots may expire before until: the entry could then take the units from
// a new record, of slots that were acquired after the old record had expired.
func (s *Slot[O]) Release(now, until int64, tell bool) (h *Held[O], units int64, told bool) {
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
	if !tell || h.doubt || h.kept || until >= h.till.Load() {
		h.doubts(now)
		return h, s.units, false
	}
	h.flying++
	return h, s.units, true
}

// remove ends a slot in this process. The lock is held.
func (h *Held[O]) remove(s *Slot[O]) {
	last := h.slots[len(h.slots)-1]
	h.slots[s.place-1], last.place = last, s.place
	h.slots[len(h.slots)-1] = nil
	h.slots = h.slots[:len(h.slots)-1]
	h.units -= s.units
	if s.timed {
		h.timed--
	}
	h.changes++
	s.end()
}

// Held reports whether the slot is held at now, which must have been read before. It is right also
// directly after this process was paused, when no timer has fired yet. A slot that was reported as lost is
// never held again.
func (s *Slot[O]) Held(now int64) bool {
	h := s.held
	switch {
	case h == nil || s.lost.Load():
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
