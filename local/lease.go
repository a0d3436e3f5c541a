package local

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Leases holds units that were charged in Redis in advance, for this process to spend
// without a trip until they end; and it measures for which keys, and how many, that is
// worth while. O is whose the leases are. It is safe for concurrent use.
//
// The table is of a fixed size, in sets. Spending takes no lock: the units left of a
// lease are in one word with a generation, which changes before anything else about
// the record does. Who exchanges the word that it began with has read what belongs
// together. All else happens once a lease or once a trip, under the lock of the set.
type Leases[O any] struct {
	sets   []leaseSet[O]
	mask   uint64
	lastID atomic.Uint64
	held   atomic.Int64
}

const (
	leaseWays = 8 // records per set

	// leaseWorth is how many requests like the one that asks there must have been, and
	// the lease must promise to serve: for fewer trips saved, others should not go
	// without the units.
	leaseWorth = 4
	// leaseServes is the part of its life in which a lease is to be spent, 1/2: so most
	// are spent, and not returned.
	leaseServes = 2
	// demandOver is the part of a life over which demand is seen at least, 1/8: from a
	// first moment of many requests on, leases so grow fourfold each.
	demandOver = 8
	// idleFor is the part of its life for which a lease is not used before it is given
	// back, 1/4.
	idleFor = 4

	asking = math.MaxInt64 // as since: a lease is on its way
)

type leaseSet[O any] struct {
	hashes  [leaseWays]atomic.Uint64
	records [leaseWays]leaseRecord[O]
	mu      sync.Mutex // guards since, used and lease of the records, and all writes but spending
	_       [56]byte   // so that records start where cache lines do
}

// leaseRecord fills one cache line of 64 bytes.
type leaseRecord[O any] struct {
	word  atomic.Uint64 // the generation, and in the low 32 bits the units left
	ends  atomic.Int64  // when they must no longer be spent
	stamp atomic.Int64  // the charge's, on the key's clock in Redis
	free  atomic.Int64  // units that Redis had left besides
	reset atomic.Int64  // when the key will be as good as new

	// since is what demand is counted from; if in the future, no lease is asked for
	// before.
	since int64
	used  int64 // units granted by Redis since then, those of the lease not included
	lease *heldLease[O]
}

// heldLease is what nobody needs to know who spends a lease.
type heldLease[O any] struct {
	Lease[O]
	old    bool   // what was spent of it is no sign of present demand
	idle   int64  // how long it may lie unused
	word   uint64 // when it was last seen to be used
	usedAt int64
}

// Lease is a lease as it was granted. All times are the process's, in ns.
type Lease[O any] struct {
	ID    uint64 // see [Leases.NextID]
	Key   string // the user's
	Hash  uint64 // of the key, unsalted
	Owner O      // whom units are given back for
	Units int64  // charged
	Stamp int64  // of the charge, on the key's clock in Redis
	Ends  int64  // when it must no longer be spent
	Free  int64  // units that Redis had left besides
	Reset int64  // when the key will be as good as new
}

// Ended is a lease that can no longer be spent, and the units that never were.
type Ended[O any] struct {
	Lease[O]
	Left int64
}

// Spent is what there is to say of a request that a lease had the units for.
type Spent struct {
	Stamp      int64 // of the charge, on the key's clock in Redis
	Remaining  int64 // units left of the lease, and those that Redis had when it was granted
	ResetAfter time.Duration
}

// NewLeases returns a table for at least the given number of keys, at 80 bytes each.
func NewLeases[O any](keys int) *Leases[O] {
	sets := uint64(1)
	if keys > leaseWays {
		sets = 1 << bits.Len64(uint64(keys-1)/leaseWays)
	}
	l := &Leases[O]{sets: make([]leaseSet[O], sets), mask: sets - 1}
	l.lastID.Store(rand.Uint64())
	return l
}

// NextID returns an ID for a lease. Those of one process differ; those of two come to
// be equal as good as never.
func (l *Leases[O]) NextID() uint64 {
	for {
		if id := l.lastID.Add(1); id != 0 {
			return id
		}
	}
}

// Spend takes cost units of the lease held for a key, if it has so many. hash is the
// salted hash of the key.
func (l *Leases[O]) Spend(hash uint64, now, cost int64) (Spent, bool) {
	return l.look(hash, now, cost, cost)
}

// Peek is what Spend would say of Remaining before it took the units.
func (l *Leases[O]) Peek(hash uint64, now, cost int64) (Spent, bool) {
	return l.look(hash, now, cost, 0)
}

func (l *Leases[O]) look(hash uint64, now, needed, cost int64) (Spent, bool) {
	set := l.set(hash)
	for i := range set.hashes {
		if set.hashes[i].Load() == hash {
			return set.records[i].look(&set.hashes[i], hash, now, needed, cost)
		}
	}
	return Spent{}, false
}

func (r *leaseRecord[O]) look(is *atomic.Uint64, hash uint64, now, needed, cost int64) (Spent, bool) {
	for {
		word := r.word.Load()
		left := int64(uint32(word))
		if left < needed || is.Load() != hash || now >= r.ends.Load() {
			return Spent{}, false
		}
		s := Spent{
			Stamp:      r.stamp.Load(),
			Remaining:  r.free.Load() + left - cost,
			ResetAfter: time.Duration(max(0, r.reset.Load()-now)),
		}
		if r.word.CompareAndSwap(word, word-uint64(cost)) {
			return s, true
		}
	}
}

// Wanted counts cost units that Redis granted now, and returns how many units to ask
// for a lease, at most most; 0 for none. If not 0, [Leases.Hold] or [Leases.Refused]
// must follow: no other caller is told to ask before.
func (l *Leases[O]) Wanted(hash uint64, now, cost int64, life time.Duration, most int64) int64 {
	set := l.set(hash)
	set.mu.Lock()
	defer set.mu.Unlock()
	r := set.find(hash)
	if r == nil {
		if r = set.create(hash); r == nil {
			return 0
		}
		r.since = now
	}
	if now < r.since {
		return 0
	}
	if now-r.since > int64(life) {
		r.since, r.used = now, 0
		if r.lease != nil {
			r.lease.old = true
		}
	}
	r.used += cost
	total := r.used
	if r.lease != nil {
		left := int64(uint32(r.word.Load()))
		if left >= cost && now < r.lease.Ends {
			return 0 // it came while this request was on its way
		}
		if !r.lease.old {
			total += r.lease.Units - left
		}
	}
	// Demand by time, times the part of its life that a lease is to serve.
	over := max(now-r.since, int64(life)/demandOver, 1)
	want := min(int64(math.Ceil(float64(total)*float64(int64(life)/leaseServes)/float64(over))), most, math.MaxUint32)
	if worth := leaseWorth * cost; want < worth || total < worth {
		return 0
	}
	r.since = asking
	return want
}

// Hold puts a lease up for being spent. It reports whether there is a place for it; if
// not, the units are the caller's to give back.
func (l *Leases[O]) Hold(hash uint64, now int64, lease Lease[O]) bool {
	set := l.set(hash)
	set.mu.Lock()
	defer set.mu.Unlock()
	r := set.find(hash)
	if r == nil || r.lease != nil {
		return false
	}
	r.ends.Store(lease.Ends)
	r.stamp.Store(lease.Stamp)
	r.free.Store(lease.Free)
	r.reset.Store(lease.Reset)
	r.since, r.used = now, 0
	word := nextGeneration(r.word.Load()) | uint64(lease.Units)
	r.lease = &heldLease[O]{Lease: lease, idle: (lease.Ends - now) / idleFor, word: word, usedAt: now}
	r.word.Store(word) // from here on it is spent
	l.held.Add(1)
	return true
}

// Refused says that a lease that was [Leases.Wanted] was not granted: another one is
// not asked for before the given time.
func (l *Leases[O]) Refused(hash uint64, until int64) {
	set := l.set(hash)
	set.mu.Lock()
	defer set.mu.Unlock()
	if r := set.find(hash); r != nil {
		r.since, r.used = until, 0
	}
}

// End ends the lease held for a key, if there is one.
func (l *Leases[O]) End(hash uint64) (Ended[O], bool) {
	set := l.set(hash)
	set.mu.Lock()
	defer set.mu.Unlock()
	if r := set.find(hash); r != nil && r.lease != nil {
		return l.end(r), true
	}
	return Ended[O]{}, false
}

// EndIdle ends the leases whose time is over or that lie unused, and returns those
// that have units left.
func (l *Leases[O]) EndIdle(now int64) []Ended[O] {
	return l.endAll(func(r *leaseRecord[O]) bool {
		h := r.lease
		if word := r.word.Load(); word != h.word {
			h.word, h.usedAt = word, now
		}
		return now >= h.Ends || now-h.usedAt >= h.idle
	})
}

// EndAll ends all leases, and returns those that have units left.
func (l *Leases[O]) EndAll() []Ended[O] {
	return l.endAll(func(*leaseRecord[O]) bool { return true })
}

func (l *Leases[O]) endAll(which func(r *leaseRecord[O]) bool) (ended []Ended[O]) {
	for i := range l.sets {
		set := &l.sets[i]
		set.mu.Lock()
		for j := range set.records {
			if r := &set.records[j]; r.lease != nil && which(r) {
				if e := l.end(r); e.Left > 0 {
					ended = append(ended, e)
				}
			}
		}
		set.mu.Unlock()
	}
	return ended
}

// end takes what is left out of a record that has a lease. The lock is held.
func (l *Leases[O]) end(r *leaseRecord[O]) Ended[O] {
	for {
		word := r.word.Load()
		if r.word.CompareAndSwap(word, nextGeneration(word)) {
			ended := Ended[O]{Lease: r.lease.Lease, Left: int64(uint32(word))}
			r.lease = nil
			l.held.Add(-1)
			return ended
		}
	}
}

// Held is how many leases are held, spent or not.
func (l *Leases[O]) Held() int { return int(l.held.Load()) }

// Left is how many units of leases could still be spent now.
func (l *Leases[O]) Left(now int64) (units int64) {
	for i := range l.sets {
		for j := range l.sets[i].records {
			if r := &l.sets[i].records[j]; now < r.ends.Load() {
				units += int64(uint32(r.word.Load()))
			}
		}
	}
	return units
}

func nextGeneration(word uint64) uint64 { return (word>>32 + 1) << 32 }

func (l *Leases[O]) set(hash uint64) *leaseSet[O] { return &l.sets[hash>>24&l.mask] }

// find returns the record of a key, or nil. The lock is held.
func (s *leaseSet[O]) find(hash uint64) *leaseRecord[O] {
	for i := range s.hashes {
		if s.hashes[i].Load() == hash {
			return &s.records[i]
		}
	}
	return nil
}

// create returns a record for a key that has none, in place of the one not asked for
// for longest; nil if leases of all others are held or on their way. The lock is held.
func (s *leaseSet[O]) create(hash uint64) *leaseRecord[O] {
	oldest := -1
	for i := range s.records {
		r := &s.records[i]
		if r.lease == nil && r.since != asking && (oldest < 0 || r.since < s.records[oldest].since) {
			oldest = i
		}
	}
	if oldest < 0 {
		return nil
	}
	r := &s.records[oldest]
	r.word.Store(nextGeneration(r.word.Load()))
	s.hashes[oldest].Store(hash)
	r.since, r.used = 0, 0
	return r
}
