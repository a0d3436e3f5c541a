package local

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Slots records what this process holds of concurrency limits. For each key it has the number of units,
// the time until which the process may rely on them, and whether Redis knows of them. Slots is safe for
// concurrent use.
//
// Redis keeps one record for each process and key, not one for each slot. So all slots of a key expire
// together, and one entry renews all of them.
//
// A lost answer leaves a key in doubt: Redis may or may not have charged the units. While a key is in
// doubt, no further entries are sent that would change its record in Redis. Once the earlier entries can
// no longer change the record, a statement gives Redis the number of units held. A statement is
// idempotent, so units neither leak nor count twice.
type Slots[O any] struct {
	wake func()

	mu    sync.Mutex // guards all keys, and their slots' places
	byKey map[HeldKey]*Held[O]
	rules map[string]*SlotCounts // rules under which slots are held or were lost, and others until Counts drops them
	ended bool                   // EndAll was called
}

// HeldKey identifies a key of a rule.
type HeldKey struct{ Rule, Key string }

// Held is what this process holds of a key. Its methods may be called after [Slots.Enter], which keeps it
// in the table.
type Held[O any] struct {
	HeldKey
	table *Slots[O]

	// till is the time until which Redis keeps the slots, on the limiter's clock. kept says that the slots
	// are valid beyond it, until Redis can be reached and knows of them, except those that end in time; see
	// Slot.EndInTime. Both are changed under mu, and till is extended only while the slots are valid; both
	// are read without a lock.
	till atomic.Int64
	kept atomic.Bool

	// Guarded by the table's mu:
	owner             O             // of the last Enter
	ttl               time.Duration // of the last Enter
	longest           time.Duration // longest ttl of all Enters since Redis has had a record
	units             int64
	least             int64 // smallest number of units since the last statement was made
	slots             []*Slot[O]
	timed             int    // number of slots that end in time
	free              int64  // free units in Redis's last reply
	share             int64  // units that this process may hold in an outage
	quota             int64  // units of the limit that share is a part of
	reserved          int64  // units of share that are reserved; see Reserve
	outage            uint32 // the outage for which share was fixed
	inFlight          int    // entries in flight that change the record in Redis
	lastEnded         int64  // when the last of those entries ended
	changes           uint64 // number of such entries that have ended, and of changes without an entry
	doubt             bool
	statementInFlight bool          // a statement of the units held is in flight
	since             int64         // the earliest time for such a statement
	over              chan struct{} // closed when the doubt is over
}

// goneAfter is the number of TTLs after which Redis has certainly forgotten a process that has sent
// nothing since. It is more than one because Redis's clock may run a little slower than this process's
// clock.
const goneAfter = 2

// NewSlots returns an empty table. wake is called when a statement about a key in doubt is due, or will
// become due. It must not block, and must not call the table.
func NewSlots[O any](wake func()) *Slots[O] {
	return &Slots[O]{wake: wake, byKey: make(map[HeldKey]*Held[O]), rules: make(map[string]*SlotCounts)}
}

func (t *Slots[O]) held(key HeldKey) *Held[O] {
	h := t.byKey[key]
	if h == nil {
		h = &Held[O]{HeldKey: key, table: t}
		t.byKey[key] = h
	}
	return h
}

// Enter records that an entry is about to be sent that changes a key's record in Redis. The entry is for
// an owner whose records last for ttl there. The caller must call Granted, Unchanged or Unknown afterwards.
// While the key is in doubt, h is nil and no entry may be sent; wait is closed when the doubt is over.
// After EndAll h is nil, and wait is never closed.
func (t *Slots[O]) Enter(key HeldKey, owner O, ttl time.Duration) (h *Held[O], wait <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return nil, make(chan struct{})
	}
	h = t.held(key)
	if h.doubt {
		return nil, h.over
	}
	h.ownedBy(owner, ttl)
	h.inFlight++
	return h, nil
}

// ownedBy records the owner for whom an entry is sent. The lock must be held.
func (h *Held[O]) ownedBy(owner O, ttl time.Duration) {
	h.owner, h.ttl, h.longest = owner, ttl, max(h.longest, ttl)
}

// entryEnded records that an entry has ended. The lock must be held.
func (h *Held[O]) entryEnded(now int64) {
	h.inFlight--
	h.changes++
	h.lastEnded = max(h.lastEnded, now)
	if h.doubt {
		h.table.wake()
	}
}

// Unchanged ends an Enter whose entry changed nothing in Redis. free is the number of free units in Redis's
// reply, or -1 if there was no reply.
func (h *Held[O]) Unchanged(now, free int64) {
	h.table.mu.Lock()
	defer h.table.mu.Unlock()
	h.entryEnded(now)
	if free >= 0 {
		h.free = free
	}
	h.clean(now)
}

// Unknown ends an Enter whose entry may have changed the record in Redis, and may still change it before
// since.
func (h *Held[O]) Unknown(now, since int64) {
	h.table.mu.Lock()
	defer h.table.mu.Unlock()
	h.entryEnded(now)
	h.lastEnded = max(h.lastEnded, since)
	h.doubts(since)
}

// doubts puts the key in doubt, or prolongs its doubt. The lock must be held.
func (h *Held[O]) doubts(since int64) {
	if !h.doubt {
		h.doubt, h.over, h.since = true, make(chan struct{}), 0
	}
	h.since = max(h.since, since)
	h.table.wake()
}

// Granted ends an Enter for which Redis granted slots until till. Each slot has the given number of
// units.
func (h *Held[O]) Granted(now, till, free, units int64, slots ...*Slot[O]) {
	h.table.mu.Lock()
	defer h.table.mu.Unlock()
	h.entryEnded(now)
	h.free = free
	if now >= till {
		// The answer arrives too late. By now, Redis may have a new record, which a later answer has
		// reported, and which does not include these units.
		h.rule().Lost += uint64(len(slots))
		h.doubts(now)
		return
	}
	h.extend(now, till)
	h.add(units, slots)
}

func (h *Held[O]) add(units int64, slots []*Slot[O]) {
	for _, s := range slots {
		h.slots = append(h.slots, s)
		if s.timed {
			h.timed++
		}
		s.held, s.units, s.place = h, units, len(h.slots)
		h.units += units
		h.rule().Units += units
	}
}

// rule returns the counts of the key's rule. The lock must be held.
func (h *Held[O]) rule() *SlotCounts {
	counts := h.table.rules[h.Rule]
	if counts == nil {
		counts = new(SlotCounts)
		h.table.rules[h.Rule] = counts
	}
	return counts
}

// extend makes the slots last until till. Slots that have expired in the meantime stay lost, even if
// Redis still has them, because their holders may have seen that they are lost. The lock must be held.
func (h *Held[O]) extend(now, till int64) {
	h.lapse(now)
	if h.units > 0 {
		till = max(h.till.Load(), till)
	} else { // Redis may now have another record, with a shorter TTL than that of earlier slots
		h.kept.Store(false)
	}
	h.till.Store(till)
}

// lapse marks the slots as lost if their time is over. The lock must be held.
func (h *Held[O]) lapse(now int64) {
	if all := !h.kept.Load(); h.units > 0 && (all || h.timed > 0) && now >= h.till.Load() {
		h.rule().Lost += h.end(now, all) // before the time is extended; see Slot.Held
	}
}

// end ends all slots, or only those that end in time, in this process only. It returns their number. The
// lock must be held.
func (h *Held[O]) end(now int64, all bool) (ended uint64) {
	for _, s := range slices.Backward(h.slots) { // remove puts the last one into the place of the removed one
		if all || s.timed {
			h.remove(s)
			ended++
		}
	}
	h.doubts(now) // Redis may still have them
	return ended
}

// clean removes a key if nothing of it is held, and if Redis has no record of it or the record has
// certainly expired. The lock must be held.
func (h *Held[O]) clean(now int64) {
	if h.units > 0 || h.reserved > 0 || h.inFlight > 0 || h.statementInFlight || h.doubt && now < h.lastEnded+goneAfter*int64(h.longest) {
		return
	}
	if h.doubt {
		h.doubt = false
		close(h.over)
	}
	delete(h.table.byKey, h.HeldKey)
}

// EndAll gives all slots back, in this process only, and makes Enter refuse further requests. Statements
// then report this to Redis.
func (t *Slots[O]) EndAll(now int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	for _, h := range t.byKey {
		if h.units > 0 {
			h.end(now, true)
		}
	}
}

// SlotCounts has a rule's number of units held now, and its number of slots lost so far.
type SlotCounts struct {
	Units int64
	// Lost is the number of slots that expired before they could be renewed.
	Lost uint64
}

// Counts returns the counts of all rules under which slots are held or were lost.
func (t *Slots[O]) Counts() map[string]SlotCounts {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := make(map[string]SlotCounts)
	for rule, c := range t.rules {
		if *c == (SlotCounts{}) {
			delete(t.rules, rule) // rules of a file come and go
		} else {
			counts[rule] = *c
		}
	}
	return counts
}

// Keys returns the number of keys in the table: keys that are held, asked for, or in doubt.
func (t *Slots[O]) Keys() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byKey)
}
