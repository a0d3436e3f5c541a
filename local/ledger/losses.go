package ledger

import (
	"sync"
	"sync/atomic"
)

// losses record the owners and groups of which units were lost that should have been charged in
// Redis: because their line was evicted, or because it is not known whether they were charged.
type losses struct {
	last    atomic.Int64   // when the last of them will have left its window
	inGroup []atomic.Int64 // the same by group

	mu      sync.Mutex
	ofOwner map[any]int64 // the same by owner
}

// Loss reports that units of an owner will never be charged in Redis. They have left their windows
// by Until. Owner is nil if there are too many owners to distinguish.
type Loss struct {
	Owner any
	Until int64
}

// mostOwners is the number of owners that are distinguished.
const mostOwners = 256

// Lost returns the losses of some groups that have not left their windows at now.
func (l *Ledger) Lost(in func(group int) bool, now int64) (lost []Loss) {
	if l.losses.last.Load() <= now {
		return nil
	}
	until := int64(0)
	for group := range l.losses.inGroup {
		if t := l.losses.inGroup[group].Load(); t > until && in(group) {
			until = t
		}
	}
	l.losses.mu.Lock()
	defer l.losses.mu.Unlock()
	for owner, t := range l.losses.ofOwner {
		if t = min(t, until); t > now {
			lost = append(lost, Loss{owner, t})
		}
	}
	return lost
}

// Lose records that units of a debt will not be charged. They have left their windows by gone.
func (l *Ledger) Lose(d Debt, gone int64) { l.lose(d.Owner, l.groups.of(d.Key), gone) }

func (l *Ledger) lose(owner any, group int, gone int64) {
	raise(&l.losses.inGroup[group], gone)
	raise(&l.losses.last, gone)
	l.losses.mu.Lock()
	defer l.losses.mu.Unlock()
	of := l.losses.ofOwner
	if _, known := of[owner]; !known && len(of) >= mostOwners {
		clear(of)
		owner, gone = nil, l.losses.last.Load()
	}
	of[owner] = max(of[owner], gone)
}

func raise(a *atomic.Int64, to int64) {
	for {
		n := a.Load()
		if to <= n || a.CompareAndSwap(n, to) {
			return
		}
	}
}
