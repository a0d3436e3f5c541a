package local

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Doubt puts the chosen keys in doubt, because Redis may have lost its data. Statements then report to
// Redis how many units are held of them.
func (t *Slots[O]) Doubt(now int64, which func(HeldKey) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.byKey {
		if which(h.HeldKey) {
			h.doubts(now)
		}
	}
}

// Statement is a message to Redis about a key. It says that the process is alive or, if Absolute, how
// many units the process holds.
type Statement[O any] struct {
	Held     *Held[O]
	Owner    O
	TTL      time.Duration
	Units    int64
	Absolute bool
	changes  uint64
	till     int64 // when the slots end if the statement is not received
}

// Renewal says which keys [Slots.Statements] renews.
type Renewal int

// The renewals. RenewRest leaves out keys whose time Redis has extended within the last quarter of their TTL. It is
// for another attempt after some renewals have failed: a process with tens of thousands of keys would otherwise
// renew all of them again for a single lost trip, just when Redis is slow.
const (
	RenewNone Renewal = iota
	RenewAll
	RenewRest
)

// renewedPart is the part of a TTL within which RenewRest does not renew again.
const renewedPart = 4

// isDue reports whether a renewal includes a key whose slots last until till.
func (r Renewal) isDue(till, now int64, ttl time.Duration) bool {
	return r == RenewAll || r == RenewRest && till-now <= int64(ttl-ttl/renewedPart)
}

// Statements returns the statements that are due now. For keys in doubt, it returns the number of units
// held, once no entry in flight can change it. For the other keys that are to be renewed, it returns that the process
// is alive. The keys whose slots end first come first, so that with very many keys each is renewed once in the time that
// all of them take. Answered or Failed must be called for each statement.
func (t *Slots[O]) Statements(now int64, renew Renewal, reachable func(HeldKey) bool) []Statement[O] {
	all := t.statements(now, renew, reachable)
	slices.SortFunc(all, func(a, b Statement[O]) int { return cmp.Compare(a.till, b.till) })
	return all
}

func (t *Slots[O]) statements(now int64, renew Renewal, reachable func(HeldKey) bool) (all []Statement[O]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.byKey {
		h.lapse(now)
		till := h.till.Load()
		due := h.units > 0 && renew.isDue(till, now, h.ttl)
		if h.doubt {
			due = !h.statementInFlight && h.inFlight == 0 && now >= h.since
		}
		if due && reachable(h.HeldKey) {
			h.statementInFlight = h.doubt
			h.least = h.units
			all = append(all, Statement[O]{h, h.owner, h.ttl, h.units, h.doubt, h.changes, till})
		}
		h.clean(now)
	}
	return all
}

// Answered records that Redis has received the statement. known is the number of units in Redis's record
// before it, and till is the time until which Redis keeps the units of the statement.
//
// If slots were released while the statement was in flight, surplus is the number of units that Redis counts in
// excess since. If it is not 0, the caller must at once send an entry that gives them back and has no effect after
// until; the statement's Held was entered for it as by [Slots.Enter]. Another statement would do the same, but while
// slots are released more often than statements are answered, the doubt would last until no slots are left.
func (s *Statement[O]) Answered(now, till, until, known, free int64) (surplus int64) {
	h := s.Held
	h.table.mu.Lock()
	defer h.table.mu.Unlock()
	h.free, h.lastEnded = free, max(h.lastEnded, now)
	if !s.Absolute {
		// While entries are in flight, Redis may know of more units than this process. It never knows of fewer than
		// those that were held all the time.
		same := h.inFlight == 0 && h.changes == s.changes // so none was in flight when the statement was made, either
		missing := known < h.least || same && known != h.units
		if missing {
			h.doubts(now)
		}
		if h.lapse(now); known > 0 && !missing && !h.kept.Load() {
			h.extend(now, till)
		}
		return 0
	}
	h.statementInFlight = false
	h.lapse(now)
	if h.kept.Load() { // from now on Redis knows of the slots
		h.till.Store(till)
		h.kept.Store(false)
	}
	h.extend(now, till)
	surplus = s.Units - h.units
	switch {
	case surplus == 0: // nothing else changed the record in Redis, because no entry was sent meanwhile
	case surplus > 0 && until < till: // see Release
		h.inFlight++
	default:
		return 0
	}
	h.doubt = false
	close(h.over)
	h.clean(now)
	return surplus
}

// Failed records that Redis may not have received the statement. The next statement must not be sent
// before since.
func (s *Statement[O]) Failed(since int64) {
	h := s.Held
	h.table.mu.Lock()
	defer h.table.mu.Unlock()
	h.lastEnded = max(h.lastEnded, since)
	if s.Absolute {
		h.statementInFlight = false
		h.since = max(h.since, since)
	}
}

// Next returns the time of the next thing to do: a slot expires, or a statement about a key in doubt may
// be sent. It returns math.MaxInt64 if there is nothing to do.
func (t *Slots[O]) Next(reachable func(HeldKey) bool) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := int64(math.MaxInt64)
	for _, h := range t.byKey {
		if h.timed > 0 || h.units > 0 && !h.kept.Load() {
			next = min(next, h.till.Load())
		}
		if h.doubt && !h.statementInFlight && h.inFlight == 0 && reachable(h.HeldKey) {
			next = min(next, h.since)
		}
	}
	return next
}
