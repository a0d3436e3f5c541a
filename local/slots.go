package local

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Slots is what this process holds of limits on what is held at the same time: for each key how
// many units, until when it may believe that, and whether Redis knows of it. It is safe for
// concurrent use.
//
// Redis keeps a line for each process and key, and not one for each slot. So all slots of a key
// last equally long, and one entry keeps them all alive.
//
// An answer that is lost leaves a key in doubt: Redis may have charged the units or not. While it
// is in doubt no further entries are sent that would change what Redis knows of it; and as soon
// as those that were can change nothing any more, Redis is told how many units are held. That
// says the same however often it is told, so nothing leaks and nothing counts twice.
type Slots struct {
	wake func()

	mu   sync.Mutex // guards all keys, and their slots' places
	of   map[HeldKey]*Held
	lost map[string]uint64 // slots, by rule
}

// HeldKey is a key of a rule.
type HeldKey struct{ Rule, Key string }

// Held is what is held of a key. Its methods may be called after [Slots.Enter], which keeps it.
type Held struct {
	HeldKey
	table *Slots

	// till is until when the slots may be believed in, on the limiter's clock. It is extended
	// only while it has not passed, under mu; it is read without.
	till atomic.Int64

	// Guarded by the table's mu:
	owner   any // whoever has entered last
	ttl     time.Duration
	units   int64
	slots   []*Slot
	free    int64  // units, as Redis said last
	kept    bool   // whatever Redis says: it cannot be reached
	share   int64  // in an outage
	outage  uint32 // which one
	flying  int    // entries that change what Redis knows
	flown   int64  // when the last of them ended
	changes uint64 // that such entries, and releases, have made
	doubt   bool
	asked   bool          // Redis is being told how many units are held
	since   int64         // it must not be told before
	over    chan struct{} // closed when the doubt is over
}

// Slot is units of a key that are held together. The zero Slot is not held; it must not be copied
// once it was granted.
type Slot struct {
	held  *Held
	units int64
	place int // among the key's slots, from 1 on; 0: it is not held any more
	lost  atomic.Bool
	ended chan struct{} // closed when it is lost or given back; nil before it is asked for
}

// goneAfter is after how many lives of a line Redis has forgotten a process that it was last told
// of then: its clock may run a little slower than this one's.
const goneAfter = 2

// NewSlots returns an empty table. wake is called when there is something to be told of a key in
// doubt, or may be later; it must not wait, nor call the table.
func NewSlots(wake func()) *Slots {
	return &Slots{wake: wake, of: make(map[HeldKey]*Held), lost: make(map[string]uint64)}
}

func (t *Slots) held(key HeldKey) *Held {
	h := t.of[key]
	if h == nil {
		h = &Held{HeldKey: key, table: t}
		t.of[key] = h
	}
	return h
}

// Enter takes note that an entry is about to be sent that changes what Redis knows of a key, for
// an owner whose lines last for ttl there. Granted, Left or Unknown must follow. But while the
// key is in doubt there is none: wait is closed when that is over.
func (t *Slots) Enter(key HeldKey, owner any, ttl time.Duration) (h *Held, wait <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h = t.held(key)
	if h.doubt {
		return nil, h.over
	}
	h.owner, h.ttl = owner, ttl
	h.flying++
	h.changes++
	return h, nil
}

// left ends an entry. The lock is held.
func (h *Held) left(now int64) {
	h.flying--
	h.changes++
	h.flown = max(h.flown, now)
	if h.doubt {
		h.table.wake()
	}
}

// Left ends an Enter: nothing has come of the entry. free is what Redis said is left, -1 if it
// said nothing.
func (h *Held) Left(now, free int64) {
	h.table.mu.Lock()
	defer h.table.mu.Unlock()
	h.left(now)
	if free >= 0 {
		h.free = free
	}
	h.clean(now)
}

// Unknown ends an Enter: whether the entry has changed anything in Redis is not known, and it can
// do so until since.
func (h *Held) Unknown(now, since int64) {
	h.table.mu.Lock()
	defer h.table.mu.Unlock()
	h.left(now)
	h.flown = max(h.flown, since)
	h.doubts(since)
}

// doubts begins a doubt, or goes on with the one there is. The lock is held.
func (h *Held) doubts(since int64) {
	if !h.doubt {
		h.doubt, h.over, h.since = true, make(chan struct{}), 0
	}
	h.since = max(h.since, since)
	h.table.wake()
}

// Granted ends an Enter: Redis has granted slots of so many units each, which it keeps until till.
func (h *Held) Granted(now, till, free, units int64, slots ...*Slot) {
	h.table.mu.Lock()
	defer h.table.mu.Unlock()
	h.left(now)
	h.free = free
	h.lapse(now)
	if now >= till {
		// The answer comes too late. Redis may have another line by now, of which a later answer
		// has told, and which knows nothing of these units.
		h.table.lost[h.Rule] += uint64(len(slots))
		h.doubts(now)
		return
	}
	h.extend(now, till)
	h.add(units, slots)
}

func (h *Held) add(units int64, slots []*Slot) {
	for _, s := range slots {
		h.slots = append(h.slots, s)
		s.held, s.units, s.place = h, units, len(h.slots)
		h.units += units
	}
}

// extend makes the slots last until till. Those that have lapsed meanwhile are lost, whatever
// Redis still knows of them: somebody may have been told so. The lock is held.
func (h *Held) extend(now, till int64) {
	h.lapse(now)
	h.till.Store(max(h.till.Load(), till))
}

// lapse loses the slots if their time is over. The lock is held.
func (h *Held) lapse(now int64) {
	if h.units == 0 || now < h.till.Load() {
		return
	}
	// Before the time is extended: see Slot.Held.
	for _, s := range h.slots {
		h.table.lost[h.Rule]++
		s.lost.Store(true)
		s.end()
	}
	h.slots, h.units, h.kept = nil, 0, false
	h.changes++
	h.doubts(now) // Redis may know of them yet
}

// end ends a slot. The lock is held.
func (s *Slot) end() {
	s.place = 0
	if s.ended != nil {
		close(s.ended)
	}
}

// Release gives a slot back, and reports whether Redis is to be told so at once: then h was
// entered. If not, because the slot is not held any more or the key is in doubt, or because tell
// is false, Redis will be told how many units are held.
func (s *Slot) Release(now int64, tell bool) (h *Held, units int64, told bool) {
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
func (s *Slot) Held(now int64) bool {
	// In this order: when the time is extended, slots that were lost before have been marked.
	return s.held != nil && now < s.held.till.Load() && !s.lost.Load()
}

// Ended returns a channel that is closed when the slot is lost or given back.
func (s *Slot) Ended() <-chan struct{} {
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

// GrantAlone grants a slot without Redis, if the process then holds no more than its share. Its
// slots of the key are kept until Redis was told of them.
func (t *Slots) GrantAlone(now int64, key HeldKey, owner any, ttl time.Duration, share func(*Held) int64, units int64, s *Slot) (granted bool, left int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.held(key)
	defer h.clean(now)
	h.owner, h.ttl = owner, ttl
	h.lapse(now)
	if left = share(h) - h.units; left < units {
		return false, max(0, left)
	}
	h.keep()
	h.add(units, []*Slot{s})
	h.changes++
	h.doubts(now)
	return true, left - units
}

// Sharing is between how many instances a limit is divided while Redis cannot be asked.
type Sharing struct {
	// Outage tells outages apart; 0: there is none.
	Outage uint32
	Fleet  int
}

// Share is how many units the process may hold while Redis cannot be asked, as of the first time
// that this is asked in an outage: what it holds, and its part of what was free; or of a key of
// which it holds nothing, its part of the limit. For GrantAlone.
func (h *Held) Share(quota int64, o Sharing) int64 {
	fleet := int64(max(1, o.Fleet))
	if o.Outage == 0 || h.outage != o.Outage {
		h.outage = o.Outage
		if h.share = max(1, quota/fleet); h.units > 0 {
			h.share = min(quota, h.units+min(h.free, quota)/fleet)
		}
	}
	return h.share
}

// Room is how many units more the process may hold by its share.
func (t *Slots) Room(now int64, key HeldKey, quota int64, o Sharing) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.held(key)
	defer h.clean(now)
	h.lapse(now)
	return max(0, h.Share(quota, o)-h.units)
}

// keep keeps the slots until Redis was told of them. The lock is held.
func (h *Held) keep() {
	h.kept = true
	h.till.Store(math.MaxInt64)
}

// Keep keeps the slots of keys that are held now, and that are to be kept although Redis cannot be
// reached: until it can, and was told of them.
func (t *Slots) Keep(now int64, which func(owner any, key string) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.of {
		if h.lapse(now); h.units > 0 && !h.kept && which(h.owner, h.Key) {
			h.keep()
			h.doubts(now)
		}
	}
}

// Doubt has Redis told how many units are held of certain keys: it may have lost its memory.
func (t *Slots) Doubt(now int64, which func(owner any, key string) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.of {
		if h.owner != nil && which(h.owner, h.Key) {
			h.doubts(now)
		}
	}
}

// Statement is what Redis is told of a key: that the process is alive, or, if Absolute, how many
// units it holds.
type Statement struct {
	Held     *Held
	Owner    any
	TTL      time.Duration
	Units    int64
	Absolute bool
	changes  uint64
	quiet    bool // no entry was on its way
}

// Statements are what Redis is to be told now: of keys in doubt how many units are held, once
// nothing is on its way that could change that; and if renew is set, of all others that the
// process is alive. Each must be Answered or Failed.
func (t *Slots) Statements(now int64, renew bool, reachable func(owner any, key string) bool) (all []Statement) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.of {
		h.lapse(now)
		due := renew && h.units > 0
		if h.doubt {
			due = !h.asked && h.flying == 0 && now >= h.since
		}
		if due && reachable(h.owner, h.Key) {
			h.asked = h.doubt
			all = append(all, Statement{h, h.owner, h.ttl, h.units, h.doubt, h.changes, h.flying == 0})
		}
		h.clean(now)
	}
	return all
}

// Answered takes note that Redis was told, knew of so many units before, and keeps those of the
// statement until till.
func (s *Statement) Answered(now, till, known, free int64) {
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
func (s *Statement) Failed(now, since int64) {
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

// clean forgets a key of which nothing is held, and of which Redis knows nothing or, since the
// time of a line is over, will know nothing. The lock is held.
func (h *Held) clean(now int64) {
	if h.units > 0 || h.flying > 0 || h.asked || h.doubt && now < h.flown+goneAfter*int64(h.ttl) {
		return
	}
	if h.doubt {
		h.doubt = false
		close(h.over)
	}
	delete(h.table.of, h.HeldKey)
}

// Next is when something is to be done next: a slot lapses, or Redis may be told of a doubt.
// math.MaxInt64 if nothing is.
func (t *Slots) Next(reachable func(owner any, key string) bool) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := int64(math.MaxInt64)
	for _, h := range t.of {
		if h.units > 0 {
			next = min(next, h.till.Load())
		}
		if h.doubt && !h.asked && h.flying == 0 && reachable(h.owner, h.Key) {
			next = min(next, h.since)
		}
	}
	return next
}

// EndAll gives all slots back, without Redis being told, which Statements then say.
func (t *Slots) EndAll(now int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.of {
		if h.owner == nil {
			continue
		}
		for _, s := range h.slots {
			s.lost.Store(true)
			s.end()
		}
		if h.units > 0 {
			h.slots, h.units, h.kept = nil, 0, false
			h.changes++
			h.doubts(now)
		}
	}
}

// SlotCounts is what is held under a rule now, and was lost so far.
type SlotCounts struct {
	Units int64
	// Lost is how many slots' time was over before Redis could be told that the process is alive.
	Lost uint64
}

// Counts returns the counts of all rules under which anything is held, or was lost.
func (t *Slots) Counts() map[string]SlotCounts {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := make(map[string]SlotCounts)
	for rule, lost := range t.lost {
		counts[rule] = SlotCounts{Lost: lost}
	}
	for _, h := range t.of {
		if h.units > 0 {
			c := counts[h.Rule]
			c.Units += h.units
			counts[h.Rule] = c
		}
	}
	return counts
}

// Keys is how many keys are known: those that are held, asked for, or in doubt.
func (t *Slots) Keys() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.of)
}
