package ledger

import (
	"sync"
	"sync/atomic"
)

// groups tell keys apart by what holds them in Redis: the slots of a Cluster. Some may be
// charged while others cannot be reached, and some be forgotten while others are not.
type groups struct {
	of    func(key string) int
	lines []atomic.Int64 // of the journal, by group

	mu        sync.Mutex // guards forgotten, and who changes the ledger's generation
	forgotten []forgetting
}

// forgetting is what Redis last forgot of a group.
type forgetting struct {
	generation uint32 // of the ledger, that began with it
	since      int64
}

// GroupBy puts keys into groups numbered from 0. Without it there is one. Call it before
// anything else.
func (l *Ledger) GroupBy(count int, of func(key string) int) {
	l.groups.of = of
	l.groups.lines = make([]atomic.Int64, count)
	l.losses.inGroup = make([]atomic.Int64, count)
	l.groups.forgotten = make([]forgetting, count)
}

// WaitingIn is how many keys of some groups have units to be charged.
func (l *Ledger) WaitingIn(in func(group int) bool) (keys int64) {
	if l.journal.lines.Load() == 0 {
		return 0
	}
	for group := range l.groups.lines {
		if n := l.groups.lines[group].Load(); n > 0 && in(group) {
			keys += n
		}
	}
	return keys
}

// forgottenSince is since when Redis has forgotten a group's units, if it did so between
// two generations of the ledger.
func (g *groups) forgottenSince(group int, from, to uint32) (since int64, forgotten bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.forgotten[group]
	return f.since, f.generation > from && f.generation <= to
}
