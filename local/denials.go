package local

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/ristretto/v2"
)

// Denials remembers which keys Redis denied, and until when (law 2). It is safe
// for concurrent use.
//
// A denial is two statements: "nothing is free until t", if no single unit was,
// and "n units are not free until u". The second says nothing of smaller costs.
// Either holds from before the request was sent, so it ends no later than Redis
// would say; and at most for a life of its own, because capacity can come back
// early (a refund, a raised limit, a reset).
type Denials struct {
	front front
	cache *ristretto.Cache[uint64, *denial]
	size  int64
	life  time.Duration
	sync  bool
	until atomic.Int64 // from then on no denial is in force: see prolong
	gates [64]gate
}

// gate keeps Close away while the cache is in use: ristretto panics if it is
// closed under a call. There are many, and each call takes any of them, so that
// callers seldom meet at one even if all ask for the same key: the time says which.
type gate struct {
	sync.RWMutex
	closed bool
	_      [39]byte // fills the cache line
}

// denial is one cache line, and never changes: whoever looks it up reads it in place.
type denial struct {
	hash      uint64
	forget    int64 // end of its own life
	nothing   int64 // nothing is free before
	cost      int64
	costFree  int64 // cost is not free before
	remaining int64 // units that were free
	reset     int64 // when the key is as good as new
	forgotten int64 // it is none: what was sent before then is void, see Forget
}

// ends is when it denies nothing any more.
func (d *denial) ends() int64 { return min(d.forget, max(d.nothing, d.costFree)) }

// Denial is what Redis said when it denied a cost.
type Denial struct {
	Cost                              int64
	RetryAfter, NextAfter, ResetAfter time.Duration
	Remaining                         int64
	Life                              time.Duration // if it is shorter than the memory's; 0: it is not
}

// NewDenials returns a memory for up to size keys, each remembered for life at most;
// and in front of it for those asked for most, up to twice as many. With synchronous
// set, a denial is in force as soon as Remember returns; otherwise a moment later, or
// under load not at all.
func NewDenials(size int, life time.Duration, synchronous bool) (*Denials, error) {
	d := &Denials{front: newFront(size), size: int64(size), life: life, sync: synchronous}
	d.until.Store(math.MinInt64)
	var err error
	d.cache, err = ristretto.NewCache(&ristretto.Config[uint64, *denial]{
		NumCounters:        int64(size) * 10,
		MaxCost:            int64(size),
		BufferItems:        64,
		IgnoreInternalCost: true,
		// The key is a hash already.
		KeyToHash: func(hash uint64) (uint64, uint64) { return hash, 0 },
	})
	if err != nil {
		return nil, fmt.Errorf("memory for %d denials: %w", size, err)
	}
	return d, nil
}

// Remember keeps a denial that was answered to a request sent at time sent.
// hash is the salted hash of the key.
func (d *Denials) Remember(hash uint64, sent int64, m Denial) {
	gate := d.gate(sent)
	gate.RLock()
	defer gate.RUnlock()
	if gate.closed {
		return
	}
	life := d.life
	if m.Life > 0 {
		life = min(life, m.Life)
	}
	// Redis's clock shows whole microseconds, and its waits count from there. On a
	// virtual clock that we share, it may have looked at that very moment (law 2).
	sent -= sent % int64(time.Microsecond)
	known := &denial{
		hash:      hash,
		forget:    sent + int64(life),
		nothing:   sent + int64(m.NextAfter),
		cost:      m.Cost,
		costFree:  sent + int64(m.RetryAfter),
		remaining: m.Remaining,
		reset:     sent + int64(m.ResetAfter),
	}
	d.prolong(known.forget) // first: see Forget
	if !d.front.put(known, sent) {
		return
	}
	d.cache.Set(hash, known, 1)
	if d.sync {
		d.cache.Wait()
	}
}

// prolong says that a denial may be in force until then: it is late by up to an eighth
// of a life, so that what all callers read is written eight times in one.
func (d *Denials) prolong(forget int64) {
	for {
		until := d.until.Load()
		if forget <= until || d.until.CompareAndSwap(until, forget+int64(d.life)/8) {
			return
		}
	}
}

// Forget drops what is remembered of a key, because capacity has come back by now. A denial
// of a request that was sent before may still be on its way: it is not remembered when it
// comes, unless other keys' have taken its place meanwhile.
func (d *Denials) Forget(hash uint64, now int64) {
	gate := d.gate(int64(hash))
	gate.RLock()
	defer gate.RUnlock()
	if gate.closed {
		return
	}
	d.front.put(&denial{hash: hash, forget: math.MinInt64, forgotten: now}, now)
	if now >= d.until.Load() {
		return // no denial of any key is in force; one that is being remembered now finds the above
	}
	d.cache.Del(hash)
	if d.sync {
		d.cache.Wait()
	}
}

// Lookup reports whether a cost is known to be denied at now, and what to answer.
// RetryAfter is exact up to the time a message takes if the cost is the one that
// was denied; otherwise it is the earliest that can be said.
func (d *Denials) Lookup(hash uint64, now, cost int64) (Denial, bool) {
	if now >= d.until.Load() {
		return Denial{}, false // as in an outage, when Redis has long said nothing
	}
	known := d.front.get(hash)
	if known == nil {
		known = d.get(hash, now)
	}
	if known == nil || now >= known.forget {
		return Denial{}, false
	}
	free := known.nothing // when cost may be free
	if cost >= known.cost {
		free = max(free, known.costFree)
	}
	if now >= free {
		return Denial{}, false
	}
	return Denial{
		Cost:       cost,
		RetryAfter: time.Duration(free - now),
		ResetAfter: time.Duration(max(0, known.reset-now)),
		Remaining:  known.remaining,
	}, true
}

func (d *Denials) gate(now int64) *gate {
	return &d.gates[uint64(now)/32%uint64(len(d.gates))] // clocks count in steps of a few ns
}

// get looks into ristretto. It returns nil for what is not there.
func (d *Denials) get(hash uint64, now int64) *denial {
	gate := d.gate(now)
	gate.RLock()
	defer gate.RUnlock()
	if gate.closed {
		return nil
	}
	known, _ := d.cache.Get(hash)
	return known
}

// Len is about how many keys are remembered.
func (d *Denials) Len() int { return int(d.size - d.cache.RemainingCost()) }

// Close frees the memory. Lookups then find nothing, and nothing more is
// remembered. Closing again does nothing.
func (d *Denials) Close() {
	for i := range d.gates {
		d.gates[i].Lock()
		d.gates[i].closed = true
		d.gates[i].Unlock()
	}
	d.front.clear()
	d.cache.Close()
}
