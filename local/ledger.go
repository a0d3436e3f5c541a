package local

import (
	"math"
	"math/bits"
	"sync"
	"time"
)

// Ledger records this instance's own grants of about the last window, for each
// key, at all times; and decides from that record when Redis is out of reach.
// Because it is kept before an outage too, the start of one grants no second
// quota. It is safe for concurrent use.
//
// A record is a sliding counter of 8 sub-windows in 64 bytes. The table has a
// fixed number of them, in sets that are locked one by one; when a set is full,
// the record that matters least makes way: one whose window has passed, or else
// the one with the fewest units. An absent record equals an empty one.
type Ledger struct {
	sets []ledgerSet
	mask uint64
}

const (
	ledgerBuckets = 8
	ledgerCounts  = ledgerBuckets + 1 // the oldest sub-window overlaps the window in part
	ledgerWays    = 8                 // records per set
)

// maxCount is the most units that a sub-window counts.
const maxCount = 1<<40 - 1

// record fills one cache line of 64 bytes. All its sub-windows have the same
// length; who uses it knows which.
type record struct {
	hash uint64
	// gone is when the newest sub-window will have left the window. So its number
	// is gone/length - ledgerCounts.
	gone int64
	// The count of sub-window i is at position i mod ledgerCounts, in two parts.
	low  [ledgerCounts]uint32
	high [ledgerCounts]uint8
}

type ledgerSet struct {
	records [ledgerWays]record
	mu      sync.Mutex // guards records
	_       [56]byte   // so that records start where cache lines do
}

// NewLedger returns a table for at least the given number of keys.
func NewLedger(keys int) *Ledger {
	sets := uint64(1)
	if keys > ledgerWays {
		sets = 1 << bits.Len64(uint64(keys-1)/ledgerWays)
	}
	return &Ledger{sets: make([]ledgerSet, sets), mask: sets - 1}
}

// Add records that cost units were granted at now. hash is the salted hash of the
// key; the salt must tell windows of different length apart.
func (l *Ledger) Add(hash uint64, window time.Duration, now, cost int64) {
	set := l.set(hash)
	set.mu.Lock()
	defer set.mu.Unlock()
	r := set.find(hash)
	if r == nil {
		r = set.create(hash, now)
	}
	r.add(r.advance(subWindow(window), now), cost)
}

// Take grants cost units at now if this instance's own grants of the last window
// leave room for them within quota. It returns what is free afterwards, and when
// the cost will fit if it does not.
func (l *Ledger) Take(hash uint64, window time.Duration, quota, now, cost int64) (granted bool, free int64, retryAfter time.Duration) {
	n, free, retryAfter := l.take(hash, window, quota, now, cost, cost)
	return n > 0, free, retryAfter
}

// TakeUpTo is Take, but grants as much of the cost as there is room for.
func (l *Ledger) TakeUpTo(hash uint64, window time.Duration, quota, now, cost int64) (granted, free int64, retryAfter time.Duration) {
	return l.take(hash, window, quota, now, 1, cost)
}

// Free is what Take would leave room for now, and when a cost that does not fit will.
func (l *Ledger) Free(hash uint64, window time.Duration, quota, now, cost int64) (free int64, retryAfter time.Duration) {
	_, free, retryAfter = l.take(hash, window, quota, now, cost, 0)
	return free, retryAfter
}

// take grants up to most units if at least least are free.
func (l *Ledger) take(hash uint64, window time.Duration, quota, now, least, most int64) (granted, free int64, retryAfter time.Duration) {
	quota = min(quota, maxCount) // so that a count that is full leaves nothing free
	length := subWindow(window)
	set := l.set(hash)
	set.mu.Lock()
	defer set.mu.Unlock()
	var newest int64
	free = max(0, quota)
	r := set.find(hash)
	if r != nil {
		newest = r.advance(length, now)
		free = max(0, quota-r.used(newest, length, now))
	}
	switch {
	case least > quota:
		return 0, free, window // it cannot fit for as long as the quota is so small
	case least > free:
		return 0, free, r.wait(newest, length, now, quota-least)
	}
	granted = min(most, free)
	if granted > 0 {
		if r == nil {
			r = set.create(hash, now)
			newest = r.advance(length, now)
		}
		r.add(newest, granted)
	}
	return granted, free - granted, 0
}

// Return takes back up to units of what was granted in the last window, the oldest
// first: what is left then leaves no earlier than it should.
func (l *Ledger) Return(hash uint64, window time.Duration, now, units int64) {
	set := l.set(hash)
	set.mu.Lock()
	defer set.mu.Unlock()
	r := set.find(hash)
	if r == nil {
		return
	}
	newest := r.advance(subWindow(window), now)
	for index := newest + 1; index <= newest+ledgerCounts; index++ { // the positions go round
		units -= r.remove(index, units)
	}
}

// Undo takes back units that Take or Add has just recorded. They are the newest; if
// the oldest went in their place, those granted before would leave later than without
// the two calls, and the later the more often that happened.
func (l *Ledger) Undo(hash uint64, window time.Duration, now, units int64) {
	set := l.set(hash)
	set.mu.Lock()
	defer set.mu.Unlock()
	r := set.find(hash)
	if r == nil {
		return
	}
	newest := r.advance(subWindow(window), now)
	for index := newest + ledgerCounts; index > newest; index-- { // the positions go round
		units -= r.remove(index, units)
	}
}

func (l *Ledger) set(hash uint64) *ledgerSet {
	// The low bits choose the shard of the denials' cache; take others.
	return &l.sets[hash>>24&l.mask]
}

// find returns the record of a key, or nil.
func (s *ledgerSet) find(hash uint64) *record {
	for i := range s.records {
		if s.records[i].hash == hash {
			return &s.records[i]
		}
	}
	return nil
}

// create returns an empty record for a key that has none, in place of the one that
// matters least.
func (s *ledgerSet) create(hash uint64, now int64) *record {
	least, lightest := 0, int64(math.MaxInt64)
	for i := range s.records {
		if weight := s.records[i].weight(now); weight < lightest {
			least, lightest = i, weight
		}
	}
	s.records[least] = record{hash: hash}
	return &s.records[least]
}

// weight is how many units would be forgotten with the record.
func (r *record) weight(now int64) int64 {
	if r.gone <= now {
		return 0
	}
	return r.total()
}

// subWindow is the length of a sub-window, rounded up: a record forgets late
// rather than early.
func subWindow(window time.Duration) int64 {
	return (int64(window) + ledgerBuckets - 1) / ledgerBuckets
}

// count is the count of sub-window index.
func (r *record) count(index int64) int64 {
	i := index % ledgerCounts
	return int64(r.high[i])<<32 | int64(r.low[i])
}

func (r *record) setCount(index, n int64) {
	i := index % ledgerCounts
	r.low[i], r.high[i] = uint32(n), uint8(n>>32)
}

// total is the sum of all counts.
func (r *record) total() int64 {
	sum := int64(0)
	for i := range int64(ledgerCounts) {
		sum += r.count(i)
	}
	return sum
}

// advance clears the sub-windows that have left the window by now, and returns the
// number of the newest one. That lies after now if a caller with a later one came
// first.
func (r *record) advance(length, now int64) (newest int64) {
	newest, current := r.gone/length-ledgerCounts, now/length
	for i := max(newest, current-ledgerCounts, -1) + 1; i <= current; i++ {
		r.setCount(i, 0)
	}
	newest = max(newest, current)
	r.gone = (newest + ledgerCounts) * length
	return newest
}

// used is the sliding-counter estimate of the units granted in the last window.
func (r *record) used(newest, length, now int64) int64 {
	oldest := r.count(newest + 1) // the positions go round
	into := max(0, now-newest*length)
	return r.total() - oldest + mulDivUp(oldest, length-into, length)
}

// wait is how long until no more than room units are in the window.
func (r *record) wait(newest, length, now, room int64) time.Duration {
	later := r.total()
	for index := newest; ; index++ { // the last one leaves all of them behind
		start := index * length
		if later <= room {
			return time.Duration(max(0, start-now))
		}
		oldest := r.count(index + 1)
		if later-oldest <= room {
			into := mulDivUp(length, later-room, oldest)
			return time.Duration(max(0, start+into-now))
		}
		later -= oldest
	}
}

// add counts cost units in the newest sub-window, up to what a count can hold.
func (r *record) add(newest, cost int64) {
	n := r.count(newest)
	r.setCount(newest, n+min(cost, maxCount-n))
}

// remove takes up to n units out of sub-window index, and returns how many.
func (r *record) remove(index, n int64) (removed int64) {
	count := r.count(index)
	removed = min(n, count)
	r.setCount(index, count-removed)
	return removed
}

// mulDivUp is x*y/m rounded up. The product may pass 64 bits, the result may not.
func mulDivUp(x, y, m int64) int64 {
	hi, lo := bits.Mul64(uint64(x), uint64(y))
	quotient, rest := bits.Div64(hi, lo, uint64(m))
	if rest > 0 {
		quotient++
	}
	return int64(quotient)
}
