package local

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Leases holds units that were charged in Redis in advance, and that this process may spend without a
// trip until they end. It also measures for which keys, and for how many units, a lease is worthwhile. O
// is the type of the leases' owners. Leases is safe for concurrent use.
//
// The table has a fixed size and is divided into sets. Spending takes no lock: of what it reads of a
// lease, only the number of units left changes, and none are left of a lease that was ended. All other
// operations happen once per lease or trip, under the lock of the set.
type Leases[O any] struct {
	sets   []leaseSet[O]
	lastID atomic.Uint64 // begins at a random number below 2^63, and so never reaches 0
	held   atomic.Int64
}

const (
	leaseWays = 8 // records per set

	// leaseWorth is the least number of requests of the current cost that must have been granted, and
	// that the lease must be expected to serve. If a lease saves fewer trips, the units are better left
	// to other processes.
	leaseWorth = 4
	// leaseServes determines the size of a lease: the units expected to be spent in 1/leaseServes of its
	// life. So most units are spent and not returned.
	leaseServes = 2
	// demandOver is the part of a life over which demand is measured at least. So at the start of a
	// burst, each lease is four times as large as the one before.
	demandOver = 8
	// idleFor is the part of its life after which an unused lease is given back: 1/idleFor.
	idleFor = 4

	asking = math.MaxInt64 // value of since while a lease is being requested
)

type leaseSet[O any] struct {
	hashes  [leaseWays]atomic.Uint64
	records [leaseWays]leaseRecord[O]
	mu      sync.Mutex // guards since and used of the records, and all writes except spending
	_       [56]byte   // so that hashes share a cache line
}

// leaseRecord has a key's lease, and its demand.
type leaseRecord[O any] struct {
	lease atomic.Pointer[heldLease[O]] // nil: the key has none
	// since is the time from which demand is counted. If it is in the future, no lease is requested
	// before then.
	since int64
	used  int64 // units granted by Redis since then, without those of the lease
}

// heldLease is a lease in the table. Its first fields, which spending needs, share a cache line. The set's
// mu guards seen, usedAt and old; all others but left do not change.
type heldLease[O any] struct {
	left atomic.Int64 // units that can be spent
	hash uint64       // under which it is in the table
	Lease[O]
	idle   int64 // how long it may stay unused
	seen   int64 // left when the lease was last seen to be used
	usedAt int64
	old    bool // units spent from it say nothing about present demand
}

// Lease is a lease as it was granted. All times are the process's, in ns.
type Lease[O any] struct {
	Stamp int64  // of the charge, on the key's clock in Redis
	Asked int64  // time at which it was requested
	Ends  int64  // time from which it must no longer be spent
	Free  int64  // units that Redis had left in addition
	Reset int64  // when the key will be as if it had never been used
	ID    uint64 // see [Leases.NextID]
	Key   string // the user key
	Hash  uint64 // of the key, unsalted
	Owner O      // to which units are given back
	Units int64  // charged
}

// Ended is a lease that can no longer be spent, with its unspent units.
type Ended[O any] struct {
	Lease[O]
	Left int64
}

// Spent is the result of a request that was served from a lease.
type Spent struct {
	Stamp      int64 // of the charge, on the key's clock in Redis
	Remaining  int64 // units left of the lease, plus those that Redis had when it was granted
	ResetAfter time.Duration
}

// NewLeases returns a table for at least the given number of keys, at 40 bytes each.
func NewLeases[O any](keys int) *Leases[O] {
	l := &Leases[O]{sets: make([]leaseSet[O], 1<<bits.Len(uint(max(0, keys-1)/leaseWays)))}
	l.lastID.Store(rand.Uint64() / 2)
	return l
}

// NextID returns an ID for a lease, which is never 0. IDs of one process differ; IDs of two processes
// almost certainly differ.
func (l *Leases[O]) NextID() uint64 { return l.lastID.Add(1) }

// Spend takes cost units from the lease of a key, if the lease has the needed units. needed and cost are
// equal, or cost is 0 to take none. hash is the salted hash of the key.
func (l *Leases[O]) Spend(hash uint64, now, needed, cost int64) (Spent, bool) {
	if r := l.set(hash).find(hash); r != nil {
		return r.lease.Load().spend(hash, now, needed, cost)
	}
	return Spent{}, false
}

func (h *heldLease[O]) spend(hash uint64, now, needed, cost int64) (Spent, bool) {
	if h == nil || h.hash != hash || now >= h.Ends { // the record may have become another key's
		return Spent{}, false
	}
	for {
		left := h.left.Load()
		if left < needed {
			return Spent{}, false
		}
		if h.left.CompareAndSwap(left, left-cost) {
			return Spent{h.Stamp, h.Free + left - cost, time.Duration(max(0, h.Reset-now))}, true
		}
	}
}

// Wanted counts cost units that Redis granted now, and returns the number of units to request as a lease,
// or 0 for no lease. The number is at most most. If it is not 0, the caller must call [Leases.Hold] or
// [Leases.Refused] once. Until then no other caller gets a number for this key.
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
	h := r.lease.Load()
	if now-r.since > int64(life) {
		r.since, r.used = now, 0
		if h != nil {
			h.old = true
		}
	}
	r.used += cost
	total := r.used
	if h != nil {
		left := h.left.Load()
		if left >= cost && now < h.Ends {
			return 0 // a lease was granted while this request was in flight
		}
		if !h.old {
			total += h.Units - left
		}
	}
	// The rate of demand, times the part of its life for which a lease should last.
	over := max(now-r.since, int64(life)/demandOver, 1)
	want := min(int64(math.Ceil(float64(total)*float64(int64(life)/leaseServes)/float64(over))), most)
	if worth := leaseWorth * cost; want < worth || total < worth {
		return 0
	}
	r.since = asking
	return want
}

// Hold stores a lease that was [Leases.Wanted], so that it can be spent. The key's previous lease must
// have been ended. There is always a place, because the record of a key that requests a lease is not
// evicted.
func (l *Leases[O]) Hold(hash uint64, now int64, lease Lease[O]) {
	set := l.set(hash)
	set.mu.Lock()
	defer set.mu.Unlock()
	r := set.find(hash)
	r.since, r.used = now, 0
	h := &heldLease[O]{hash: hash, Lease: lease, idle: (lease.Ends - now) / idleFor, seen: lease.Units, usedAt: now}
	h.left.Store(lease.Units)
	r.lease.Store(h) // from here on the lease can be spent
	l.held.Add(1)
}

// Refused records that a lease that was [Leases.Wanted] was not granted. No lease is requested again
// before the given time.
func (l *Leases[O]) Refused(hash uint64, until int64) {
	set := l.set(hash)
	set.mu.Lock()
	defer set.mu.Unlock()
	r := set.find(hash) // has not been evicted, see Hold
	r.since, r.used = until, 0
}

// End ends the lease of a key, if there is one.
func (l *Leases[O]) End(hash uint64) (Ended[O], bool) {
	set := l.set(hash)
	set.mu.Lock()
	defer set.mu.Unlock()
	if r := set.find(hash); r != nil && r.lease.Load() != nil {
		return l.end(r), true
	}
	return Ended[O]{}, false
}

// EndIdle ends the leases that have expired or are unused, and returns those that have units left.
func (l *Leases[O]) EndIdle(now int64) []Ended[O] {
	return l.endAll(func(h *heldLease[O]) bool {
		if left := h.left.Load(); left != h.seen {
			h.seen, h.usedAt = left, now
		}
		return now >= h.Ends || now-h.usedAt >= h.idle
	})
}

// EndAll ends all leases, and returns those that have units left.
func (l *Leases[O]) EndAll() []Ended[O] {
	return l.endAll(func(*heldLease[O]) bool { return true })
}

func (l *Leases[O]) endAll(which func(*heldLease[O]) bool) (ended []Ended[O]) {
	for i := range l.sets {
		set := &l.sets[i]
		set.mu.Lock()
		for j := range set.records {
			r := &set.records[j]
			if h := r.lease.Load(); h != nil && which(h) {
				if e := l.end(r); e.Left > 0 {
					ended = append(ended, e)
				}
			}
		}
		set.mu.Unlock()
	}
	return ended
}

// end removes the lease from a record that has one. The lock must be held.
func (l *Leases[O]) end(r *leaseRecord[O]) Ended[O] {
	h := r.lease.Swap(nil)
	l.held.Add(-1)
	return Ended[O]{Lease: h.Lease, Left: h.left.Swap(0)}
}

// Held returns the number of leases, whether or not all their units are spent.
func (l *Leases[O]) Held() int { return int(l.held.Load()) }

// Left returns the number of units of all leases that can be spent now.
func (l *Leases[O]) Left(now int64) (units int64) {
	for i := range l.sets {
		for j := range l.sets[i].records {
			if h := l.sets[i].records[j].lease.Load(); h != nil && now < h.Ends {
				units += h.left.Load()
			}
		}
	}
	return units
}

func (l *Leases[O]) set(hash uint64) *leaseSet[O] { return &l.sets[hash>>24&uint64(len(l.sets)-1)] }

// find returns the record of a key, or nil if there is none. Without the lock, the record may become another
// key's at any time.
func (s *leaseSet[O]) find(hash uint64) *leaseRecord[O] {
	for i := range s.hashes {
		if s.hashes[i].Load() == hash {
			return &s.records[i]
		}
	}
	return nil
}

// create returns a record for a key that has none. It replaces the record that was unused for the longest
// time. It returns nil if all records have a lease or are requesting one. The lock must be held.
func (s *leaseSet[O]) create(hash uint64) *leaseRecord[O] {
	oldest := -1
	for i := range s.records {
		r := &s.records[i]
		if r.lease.Load() == nil && r.since != asking && (oldest < 0 || r.since < s.records[oldest].since) {
			oldest = i
		}
	}
	if oldest < 0 {
		return nil
	}
	s.hashes[oldest].Store(hash)
	s.records[oldest].since, s.records[oldest].used = 0, 0
	return &s.records[oldest]
}
