package ledger

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

// groups divide keys by where Redis stores them: by the slots of a Cluster. Some groups may be charged
// while others cannot be reached, and Redis may lose the data of some groups but not of others.
type groups struct {
	groupOf func(key string) int
	lines   []atomic.Int64 // number of the journal's lines, by group

	mu        sync.Mutex // guards forgotten and changes of the ledger's generation
	forgotten [][]forgetting
}

// forgetting is one data loss of Redis.
type forgetting struct {
	generation uint32 // the generation of the ledger that began with the loss
	since      int64
}

// forgettingsKept is the number of losses of a group that are distinguished. Older losses count as one,
// with the earliest of their times. Units of them that Redis still has may be charged twice, but none are
// left out.
const forgettingsKept = 4

// GroupBy puts keys into groups numbered from 0. Without it there is one group. Call it before any other
// method.
func (l *Ledger[O]) GroupBy(count int, of func(key string) int) {
	l.groups.groupOf = of
	l.groups.lines = make([]atomic.Int64, count)
	l.losses.inGroup = make([]atomic.Int64, count)
	l.groups.forgotten = make([][]forgetting, count)
}

// WaitingIn returns the number of keys of the given groups that have units to be charged in Redis.
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

// forget records a loss in a group. mu must be held.
func (g *groups) forget(group int, f forgetting) {
	losses := append(g.forgotten[group], f)
	if len(losses) > forgettingsKept {
		losses[1].since = min(losses[0].since, losses[1].since)
		losses = slices.Delete(losses, 0, 1)
	}
	g.forgotten[group] = losses
}

// forgottenSince returns the time since which Redis has lost a group's units, if it lost any between two
// generations of the ledger.
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
