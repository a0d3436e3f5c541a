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
// A record is a sliding counter of 8 sub-windows in one cache line. The table
// has a fixed number of them, in sets that are locked one by one; when a set is
// full, the record that matters least makes way: one whose window has passed, or
// else the one with the fewest units. An absent record equals an empty one.
type Ledger struct {
	sets []ledgerSet
	mask uint64
}

const (
	ledgerBuckets = 8
	ledgerWays    = 8 // records per set
)

// record fills one cache line of 64 bytes.
type record struct {
	hash   uint64
	newest int64 // number of the newest sub-window
	passed int64 // when its last unit has left the window
	total  uint32
	counts [ledgerBuckets + 1]uint32
}

type ledgerSet struct {
	mu      sync.Mutex
	records [ledgerWays]record
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
	r := set.find(hash, now, true)
	r.advance(window, now)
	r.add(window, cost)
}

// Take grants cost units at now if this instance's own grants of the last window
// leave room for them within quota. It returns what is free afterwards, and when
// the cost will fit if it does not.
func (l *Ledger) Take(hash uint64, window time.Duration, quota, now, cost int64) (granted bool, free int64, retryAfter time.Duration) {
	set := l.set(hash)
	set.mu.Lock()
	defer set.mu.Unlock()
	r := set.find(hash, now, false)
	used := int64(0)
	if r != nil {
		r.advance(window, now)
		used = r.used(window, now)
	}
	free = max(0, quota-used)
	if cost > free {
		if r == nil || cost > quota {
			return false, free, window // it cannot fit for as long as the quota is so small
		}
		return false, free, r.wait(window, now, quota-cost)
	}
	if r == nil {
		r = set.find(hash, now, true)
		r.advance(window, now)
	}
	r.add(window, cost)
	return true, free - cost, 0
}

func (l *Ledger) set(hash uint64) *ledgerSet {
	// The low bits choose the shard of the denials' cache; take others.
	return &l.sets[hash>>24&l.mask]
}

// find returns the record of a key. If there is none it returns nil, or with
// create set, an empty one in place of the one that matters least.
func (s *ledgerSet) find(hash uint64, now int64, create bool) *record {
	least := &s.records[0]
	for i := range s.records {
		r := &s.records[i]
		if r.hash == hash {
			return r
		}
		if r.weight(now) < least.weight(now) {
			least = r
		}
	}
	if !create {
		return nil
	}
	*least = record{hash: hash}
	return least
}

// weight is how many units would be forgotten with the record.
func (r *record) weight(now int64) uint32 {
	if r.passed <= now {
		return 0
	}
	return r.total
}

// step is the length of a sub-window, rounded up: a record forgets late rather
// than early.
func step(window time.Duration) int64 {
	return (int64(window) + ledgerBuckets - 1) / ledgerBuckets
}

// advance clears the sub-windows that have left the window by now.
func (r *record) advance(window time.Duration, now int64) {
	current := now / step(window)
	if current-r.newest > ledgerBuckets {
		r.counts = [ledgerBuckets + 1]uint32{}
		r.total = 0
		r.newest = current
	}
	for r.newest < current {
		r.newest++
		c := &r.counts[r.newest%(ledgerBuckets+1)]
		r.total -= *c
		*c = 0
	}
}

// used is the sliding-counter estimate of the units granted in the last window.
func (r *record) used(window time.Duration, now int64) int64 {
	length := step(window)
	oldest := int64(r.counts[(r.newest+1)%(ledgerBuckets+1)])
	hi, lo := bits.Mul64(uint64(oldest), uint64(length-now%length))
	weighed, rest := bits.Div64(hi, lo, uint64(length))
	if rest > 0 {
		weighed++
	}
	return int64(r.total) - oldest + int64(weighed)
}

// wait is how long until no more than room units are in the window.
func (r *record) wait(window time.Duration, now, room int64) time.Duration {
	length := step(window)
	later := int64(r.total)
	for index := r.newest; ; index++ {
		oldest := int64(0)
		if index-r.newest <= ledgerBuckets {
			oldest = int64(r.counts[(index+1)%(ledgerBuckets+1)])
		}
		start := index * length
		if later <= room {
			return time.Duration(max(0, start-now))
		}
		if later-oldest <= room {
			into := float64(length) * float64(later-room) / float64(oldest)
			return time.Duration(max(0, start+int64(math.Ceil(into))-now))
		}
		later -= oldest
	}
}

// add counts cost units in the newest sub-window, up to what a count can hold.
func (r *record) add(window time.Duration, cost int64) {
	n := uint32(min(cost, int64(math.MaxUint32-r.total)))
	r.counts[r.newest%(ledgerBuckets+1)] += n
	r.total += n
	r.passed = (r.newest + ledgerBuckets + 1) * step(window)
}
