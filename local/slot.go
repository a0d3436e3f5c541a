package local

import "sync/atomic"

// Slot is units of a key that are held together. The zero Slot is not held; it must not be copied
// once it was granted.
type Slot[O any] struct {
	held  *Held[O]
	units int64
	place int // among the key's slots, from 1 on; 0: it is not held any more
	lost  atomic.Bool
	ended chan struct{} // closed when it is lost or given back; nil before it is asked for
}

// end ends a slot. The lock is held.
func (s *Slot[O]) end() {
	s.place = 0
	if s.ended != nil {
		close(s.ended)
	}
}

// Release gives a slot back, and reports whether Redis is to be told so at once: then h was
// entered. If not, because the slot is not held any more or the key is in doubt, or because tell
// is false, Redis will be told how many units are held.
func (s *Slot[O]) Release(now int64, tell bool) (h *Held[O], units int64, told bool) {
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
	last := h.slots[len(h.slots)-1]
	h.slots[s.place-1], last.place = last, s.place
	h.slots[len(h.slots)-1] = nil
	h.slots = h.slots[:len(h.slots)-1]
	h.units -= s.units
	h.changes++
	s.lost.Store(true)
	s.end()
	if !tell || h.doubt || h.kept {
		h.doubts(now)
		return h, s.units, false
	}
	h.flying++
	return h, s.units, true
}

// Held reports whether the slot is held, at a time that was read before: also directly after this
// process stood still, when no timer has fired yet.
func (s *Slot[O]) Held(now int64) bool {
	// In this order: when the time is extended, slots that were lost before have been marked.
	return s.held != nil && now < s.held.till.Load() && !s.lost.Load()
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
