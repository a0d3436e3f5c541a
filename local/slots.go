package local

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Slots records what this process holds of concurrency limits: for each key the number of units,
// until when the process may rely on them, and whether Redis knows of them. It is safe for
// concurrent use.
//
// Redis keeps a record for each process and key, and not for each slot. So all slots of a key
// expire together, and one entry renews all of them.
//
// An answer that is lost leaves a key in doubt: Redis may have charged the units or not. While it
// is in doubt, no further entries are sent that would change its record in Redis. Once the earlier
// ones can no longer change anything, Redis is told how many units are held. That statement is
// idempotent, so nothing leaks and nothing counts twice.
type Slots struct {
	wake func()

	mu   sync.Mutex // guards all keys, and their slots' places
	of   map[HeldKey]*Held
	lost map[string]uint64 // slots, by rule
}

// HeldKey is a key of a rule.
type HeldKey struct{ Rule, Key string }

// Held is what the process holds of a key. Its methods may be called after [Slots.Enter], which
// keeps it in the table.
type Held struct {
	HeldKey
	table *Slots

	// till is the time until which the slots are valid, on the limiter's clock. It is extended
	// under mu, and only while it has not passed; it is read without a lock.
	till atomic.Int64

	// Guarded by the table's mu:
	owner   any // of the last Enter
	ttl     time.Duration
	units   int64
	slots   []*Slot
	free    int64  // units, by Redis's last answer
	kept    bool   // slots are kept because Redis cannot be reached
	share   int64  // in an outage
	outage  uint32 // the outage of share
	flying  int    // entries in flight that change the record in Redis
	flown   int64  // when the last of them ended
	changes uint64 // number of changes by such entries and releases
	doubt   bool
	asked   bool          // Redis is being told how many units are held
	since   int64         // Redis must not be told before
	over    chan struct{} // closed when the doubt is over
}

// Slot is units of a key that are held together. The zero Slot is not held; it must not be copied
// once it was granted.
type Slot struct {
	held  *Held
	units int64
	place int // among the key's slots, from 1 on; 0: no longer held
	lost  atomic.Bool
	ended chan struct{} // closed when the slot is lost or given back; made by Ended
}

// goneAfter is the number of TTLs after the last entry after which Redis has certainly forgotten
// the process: its clock may run a little slower than this one's.
const goneAfter = 2

// NewSlots returns an empty table. wake is called when a key in doubt may need a statement, now or
// later; it must not block, nor call the table.
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

// Enter records that an entry is about to be sent that changes a key's record in Redis, for an
// owner whose records last for ttl. Granted, Left or Unknown must follow. While the key is in
// doubt, h is nil, and wait is closed when the doubt is over.
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

// Left ends an Enter whose entry has changed nothing. free is the number of free units in Redis's
// answer, or -1 without an answer.
func (h *Held) Left(now, free int64) {
	h.table.mu.Lock()
	defer h.table.mu.Unlock()
	h.left(now)
	if free >= 0 {
		h.free = free
	}
	h.clean(now)
}

// Unknown ends an Enter whose entry may have changed the record in Redis, or may do so until since.
func (h *Held) Unknown(now, since int64) {
	h.table.mu.Lock()
	defer h.table.mu.Unlock()
	h.left(now)
	h.flown = max(h.flown, since)
	h.doubts(since)
}

// doubts puts the key in doubt, or prolongs the doubt. The lock is held.
func (h *Held) doubts(since int64) {
	if !h.doubt {
		h.doubt, h.over, h.since = true, make(chan struct{}), 0
	}
	h.since = max(h.since, since)
	h.table.wake()
}

// Granted ends an Enter whose entry Redis has granted: slots of the given units each, which it
// keeps until till.
func (h *Held) Granted(now, till, free, units int64, slots ...*Slot) {
	h.table.mu.Lock()
	defer h.table.mu.Unlock()
	h.left(now)
	h.free = free
	h.lapse(now)
	if now >= till {
		// The answer arrives too late. Redis may have a new record by now, which a later answer has
		// reported, and which does not have these units.
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

// extend makes the slots last until till. Slots that have expired meanwhile are lost even if Redis
// still has them, because somebody may have been told so. The lock is held.
func (h *Held) extend(now, till int64) {
	h.lapse(now)
	h.till.Store(max(h.till.Load(), till))
}

// lapse marks the slots as lost if they have expired. The lock is held.
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
	h.doubts(now) // Redis may still have them
}

// end ends a slot. The lock is held.
func (s *Slot) end() {
	s.place = 0
	if s.ended != nil {
		close(s.ended)
	}
}

// Release gives a slot back, and reports whether the caller must tell Redis at once; then it has
// entered h. Otherwise, because the slot is no longer held, the key is in doubt, or tell is false,
// Redis will be told later how many units are held.
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

// Held reports whether the slot is held at now, which must be read before the call. It is right
// even directly after this process was paused, before any timer has fired.
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
// slots of the key are kept until Redis has been told of them.
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

// Sharing says among how many instances a limit is divided while Redis cannot be asked.
type Sharing struct {
	// Outage tells outages apart; 0: there is none.
	Outage uint32
	Fleet  int
}

// Share returns the number of units that the process may hold while Redis cannot be asked. It is
// computed at the first call in an outage: what the process holds, plus its part of what was free;
// or its part of the limit if it holds nothing of the key. It is for GrantAlone.
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

// Room returns how many more units the process may hold by its share.
func (t *Slots) Room(now int64, key HeldKey, quota int64, o Sharing) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.held(key)
	defer h.clean(now)
	h.lapse(now)
	return max(0, h.Share(quota, o)-h.units)
}

// keep keeps the slots until Redis has been told of them. The lock is held.
func (h *Held) keep() {
	h.kept = true
	h.till.Store(math.MaxInt64)
}

// Keep keeps the present slots of the selected keys although Redis cannot be reached, until it can
// be and has been told of them.
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

// Doubt puts the selected keys in doubt, so that Redis is told how many units are held: it may have
// lost its data.
func (t *Slots) Doubt(now int64, which func(owner any, key string) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.of {
		if h.owner != nil && which(h.owner, h.Key) {
			h.doubts(now)
		}
	}
}

// Statement is an entry about a key: that the process is alive, or if Absolute, how many units it
// holds.
type Statement struct {
	Held     *Held
	Owner    any
	TTL      time.Duration
	Units    int64
	Absolute bool
	changes  uint64
	quiet    bool // no entry was in flight
}

// Statements returns what to tell Redis now: for keys in doubt the number of units held, once no
// entry is in flight that could change it; and if renew is set, for all others that the process is
// alive. Each must be Answered or Failed.
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

// Answered records that Redis has received the statement, that it had known of the given units
// before, and that it keeps those of the statement until till.
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

// Failed records that Redis may not have received the statement, and that none may be sent before
// since.
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

// clean forgets a key of which nothing is held, and of which Redis has no record any more. The lock
// is held.
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

// Next returns the time of the next action: a slot expires, or Redis may be told of a key in doubt.
// It is math.MaxInt64 if there is none.
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

// EndAll gives all slots back without telling Redis; Statements then do so.
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

// SlotCounts has the numbers of a rule: held now, and lost so far.
type SlotCounts struct {
	Units int64
	// Lost is the number of slots that expired before Redis could be told that the process is
	// alive.
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

// Keys returns the number of keys in the table: those that are held, being acquired, or in doubt.
func (t *Slots) Keys() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.of)
}
