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
// A denial consists of two statements: "nothing is free until t", if not even one unit was free, and "n
// units are not free until u". The second one says nothing about smaller costs. Both times are counted
// from before the request was sent, so they end no later than on Redis's clock. A denial also has a
// maximal life, because capacity can come back early (after a refund, a reset, or a raise of the limit).
type Denials struct {
	front front
	cache *ristretto.Cache[uint64, *denial]
	life  time.Duration
	sync  bool
	until atomic.Int64 // no denial is in force after this time; see prolong
	gates [64]gate
}

// gate delays Close while the cache is in use, because ristretto panics if it is closed during a call.
// There are many gates. Lookup and Remember take the one that belongs to their time, so callers rarely
// contend for the same gate, even if all of them ask for the same key.
type gate struct {
	sync.RWMutex
	closed bool
	_      [39]byte // fills the cache line
}

// denial takes one cache line and is immutable, so lookups read it in place.
type denial struct {
	hash      uint64
	forget    int64 // end of its maximal life
	nothing   int64 // nothing is free before this time
	cost      int64
	costFree  int64 // cost units are not free before this time
	remaining int64 // units that were free
	reset     int64 // when the key will be as if it had never been used
	forgotten int64 // not 0: denials of earlier requests are void, see Forget; kept until another key has the place
}

// ends returns the time from which the denial denies nothing.
func (d *denial) ends() int64 { return min(d.forget, max(d.nothing, d.costFree)) }

// Denial is Redis's answer when it denied a cost.
type Denial struct {
	Cost                              int64
	RetryAfter, NextAfter, ResetAfter time.Duration
	Remaining                         int64
	Life                              time.Duration // if shorter than that of NewDenials; otherwise 0
}

// NewDenials returns a Denials for up to size keys. Each denial is remembered for at most life. A table
// in front holds up to twice as many keys, those that are asked for most. If synchronous is set, a denial
// is in force as soon as Remember returns; otherwise a moment later, or under load not at all. With
// a size of 0, nothing is ever remembered.
func NewDenials(size int, life time.Duration, synchronous bool) (*Denials, error) {
	d := &Denials{front: newFront(size), life: life, sync: synchronous}
	d.until.Store(math.MinInt64)
	if size == 0 {
		d.Close()
		return d, nil
	}
	var err error
	d.cache, err = ristretto.NewCache(&ristretto.Config[uint64, *denial]{
		NumCounters:        int64(size) * 10,
		MaxCost:            int64(size),
		BufferItems:        64,
		IgnoreInternalCost: true,
		// The key is already a hash.
		KeyToHash: func(hash uint64) (uint64, uint64) { return hash, 0 },
	})
	if err != nil {
		return nil, fmt.Errorf("memory for %d denials: %w", size, err)
	}
	return d, nil
}

// Remember stores a denial that answered a request sent at time sent. hash is the salted hash of
// the key.
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
	// Redis's clock has whole microseconds, and its waits count from there. A virtual clock is shared,
	// and Redis may have read it at this very moment (law 2).
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
	d.prolong(known.forget) // before the denial is stored; see Forget
	if !d.front.put(known, sent) {
		return
	}
	d.cache.Set(hash, known, 1)
	if d.sync {
		d.cache.Wait()
	}
}

// prolong records that a denial may be in force until forget. It rounds up by an eighth of a life. So the
// field that all callers read is written at most eight times per life.
func (d *Denials) prolong(forget int64) {
	for {
		until := d.until.Load()
		if forget <= until || d.until.CompareAndSwap(until, forget+int64(d.life)/8) {
			return
		}
	}
}

// Forget removes a key's denial, because capacity has come back by now. The answer to a request that was
// sent earlier may still arrive. Its denial is not stored, unless another key has taken the place in the
// table in the meantime.
func (d *Denials) Forget(hash uint64, now int64) {
	gate := d.gate(int64(hash))
	gate.RLock()
	defer gate.RUnlock()
	if gate.closed {
		return
	}
	d.front.put(&denial{hash: hash, forget: math.MinInt64, forgotten: now}, now)
	if now >= d.until.Load() {
		return // no denial is in force; one that is being remembered now finds the mark above
	}
	d.cache.Del(hash) // takes effect at once
}

// Lookup reports whether a cost is known to be denied at now, and returns the denial. If the cost is the
// one that was denied, RetryAfter is exact except for the time that a message takes. Otherwise it is the
// earliest time at which the cost can possibly be free.
func (d *Denials) Lookup(hash uint64, now, cost int64) (Denial, bool) {
	if now >= d.until.Load() {
		return Denial{}, false // for example in an outage, when there are no recent denials
	}
	known := d.front.get(hash)
	if known == nil {
		known = d.get(hash, now)
	}
	if known == nil || now >= known.forget || known.forget-now > int64(d.life) { // or virtual time stepped back (law 5)
		return Denial{}, false
	}
	free := known.nothing // time from which cost may be free
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

// get returns a denial from ristretto, or nil if there is none.
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

// Len returns the approximate number of remembered keys.
func (d *Denials) Len() int { return int(d.cache.MaxCost() - d.cache.RemainingCost()) }

// Close frees the memory. After Close, lookups find nothing, and nothing is remembered. Closing again
// does nothing.
func (d *Denials) Close() {
	for i := range d.gates {
		d.gates[i].Lock()
		d.gates[i].closed = true
		d.gates[i].Unlock()
	}
	d.front.clear()
	d.cache.Close()
}
