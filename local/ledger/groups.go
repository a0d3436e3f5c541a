package ledger

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

// groups divide keys by where Redis stores them: by the slots of a Cluster. Some may be charged
// while others cannot be reached, and Redis may lose the data of some but not of others.
type groups struct {
	of    func(key string) int
	lines []atomic.Int64 // of the journal, by group

	mu        sync.Mutex // guards forgotten, and changes of the ledger's generation
	forgotten [][]forgetting
}

// forgetting is a data loss of Redis.
type forgetting struct {
	generation uint32 // of the ledger, which began with it
	since      int64
}

// forgettingsKept is how many losses of a group are told apart. Older ones count as one, since the
// earliest time of them: what Redis still has of it may be charged twice, but nothing is left out.
const forgettingsKept = 4

// GroupBy puts keys into groups numbered from 0. Without it there is one. Call it before
// anything else.
func (l *Ledger[O]) GroupBy(count int, of func(key string) int) {
	l.groups.of = of
	l.groups.lines = make([]atomic.Int64, count)
	l.losses.inGroup = make([]atomic.Int64, count)
	l.groups.forgotten = make([][]forgetting, count)
}

// WaitingIn returns the number of keys of the given groups that have units to be charged.
func (l *Ledger[O]) WaitingIn(in func(group int) bool) (keys int64) {
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

// forget notes a loss in a group, under mu.
func (g *groups) forget(group int, f forgetting) {
	losses := append(g.forgotten[group], f)
	if len(losses) > forgettingsKept {
		losses[1].since = min(losses[0].since, losses[1].since)
		losses = slices.Delete(losses, 0, 1)
	}
	g.forgotten[group] = losses
}

// forgottenSince returns the time since which Redis has lost a group's units, if it did so between
// two generations of the ledger.
func (g *groups) forgottenSince(group int, from, to uint32) (since int64, forgotten bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	since = math.MaxInt64
	for _, f := range g.forgotten[group] {
		if f.generation > from && f.generation <= to {
			since, forgotten = min(since, f.since), true
		}
	}
	return since, forgotten
}
