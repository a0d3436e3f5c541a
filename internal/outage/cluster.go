package outage

import (
	"strconv"
	"sync/atomic"

	"github.com/tierlimit/tierlimit/remote"
)

// maxShards bounds what is kept for the masters of a Cluster. Should there be more, some share a
// shard.
const maxShards = 256

// clusterMap maps the slots of a Cluster to shards.
type clusterMap struct {
	routes atomic.Pointer[routes]
}

// routes are immutable.
type routes struct {
	of     [remote.SlotCount]uint8 // position in shards, by slot
	shards []*Shard                // all there ever were, for reuse
	used   []*Shard                // those whose masters have slots
}

// where is a shard's place in a Cluster.
type where struct {
	addr  string // of its master
	slots int    // number of its slots; 0: not in use
	fleet uint16 // the slot of the fleet's key
}

// newClusterMap returns the map of a Cluster whose masters are not known yet.
func newClusterMap(first *Shard) *clusterMap {
	m := &clusterMap{}
	first.where.Store(&where{slots: remote.SlotCount})
	m.routes.Store(&routes{shards: []*Shard{first}, used: []*Shard{first}})
	return m
}

// Of returns the shard of a key. If its slot has just moved, that is the wrong shard, but the
// client finds the right master.
func (l *Shards) Of(key remote.UserKey) *Shard {
	if l.cluster == nil {
		return l.first
	}
	r := l.cluster.routes.Load()
	return r.shards[r.of[l.Slot(key)]]
}

// At returns the shard of that [Shard.Index].
func (l *Shards) At(index int) *Shard {
	if l.cluster == nil {
		return l.first
	}
	return l.cluster.routes.Load().shards[index]
}

// Only returns the single shard, or nil on a Cluster.
func (l *Shards) Only() *Shard {
	if l.cluster != nil {
		return nil
	}
	return l.first
}

// InUse returns the shards whose masters have slots; without a Cluster, the single one.
func (l *Shards) InUse() []*Shard {
	if l.cluster == nil {
		return l.alone
	}
	return l.cluster.routes.Load().used
}

// inUse reports whether the shard's master has slots.
func (s *Shard) inUse() bool {
	w := s.where.Load()
	return w == nil || w.slots > 0
}

// has returns a function that reports whether a group of the ledger is the shard's.
func (s *Shard) has() func(group int) bool {
	if s.all.cluster == nil {
		return func(int) bool { return true }
	}
	r := s.all.cluster.routes.Load()
	return func(slot int) bool { return int(r.of[slot]) == s.index }
}

// kind is a kind of log lines, of this shard.
func (s *Shard) kind(of string) string {
	if s.all.cluster == nil {
		return of
	}
	return of + " " + strconv.Itoa(s.index)
}

// name returns the shard's name for log lines.
func (s *Shard) name() []any {
	w := s.where.Load()
	if w == nil || w.addr == "" {
		return nil
	}
	return []any{"master", w.addr, "slots", w.slots}
}

// Where is the address of the shard's master, how many slots it has, and the slot in which the
// fleet meets there. Without a Cluster the address is "".
func (s *Shard) Where() (addr string, slots int, fleet uint16) {
	if w := s.where.Load(); w != nil {
		return w.addr, w.slots, w.fleet
	}
	return "", 0, 0
}
