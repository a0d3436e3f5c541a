package outage

import (
	"cmp"
	"strconv"

	"github.com/tierlimit/tierlimit/remote"
)

// maxShards bounds the number of shards that are kept for the masters of a Cluster. If there are more
// masters, some share a shard.
const maxShards = 256

// routes map the slots of a Cluster to shards. Until its masters are known, a Cluster has one shard. routes are
// immutable.
type routes struct {
	bySlot [remote.SlotCount]uint8 // position in shards, by slot
	shards []*Shard                // all shards that were ever made; unused ones are reused
	used   []*Shard                // shards whose masters have slots
}

// location is a shard's place in a Cluster.
type location struct {
	addr  string // address of the shard's master; "" without a Cluster or slots
	slots int    // number of the master's slots; 0: not in use
	fleet uint16 // the slot of the fleet's key
}

func (l *Shards) onCluster() bool { return l.Masters != nil }

// Of returns the shard of a key. If the key's slot has just moved, Of may return the wrong shard, but the
// client finds the right master.
func (l *Shards) Of(key remote.UserKey) *Shard {
	if !l.onCluster() {
		return l.first
	}
	r := l.routes.Load()
	return r.shards[r.bySlot[l.Slot(key)]]
}

// At returns the shard with the given [Shard.Index].
func (l *Shards) At(index int) *Shard { return l.routes.Load().shards[index] }

// Only returns the single shard, or nil on a Cluster.
func (l *Shards) Only() *Shard {
	if l.onCluster() {
		return nil
	}
	return l.first
}

// InUse returns the shards whose masters have slots. Without a Cluster it returns the single shard.
func (l *Shards) InUse() []*Shard { return l.routes.Load().used }

// inUse reports whether the shard's master has slots.
func (s *Shard) inUse() bool { return s.location.Load().slots > 0 }

// has returns a function that reports whether a group of the ledger belongs to the shard. Groups are
// slots; without a Cluster there is only group 0.
func (s *Shard) has() func(group int) bool {
	r := s.all.routes.Load()
	return func(group int) bool { return int(r.bySlot[group]) == s.index }
}

// kind returns the kind of a log line about this shard.
func (s *Shard) kind(of string) string {
	if !s.all.onCluster() {
		return of
	}
	return of + " " + strconv.Itoa(s.index)
}

// name returns the shard's name for log lines.
func (s *Shard) name() []any {
	w := s.location.Load()
	if w.addr == "" {
		return nil
	}
	return []any{"master", w.addr, "slots", w.slots}
}

// Location returns the address of the shard's master, and the slot of the fleet's key there. Without a
// Cluster the address is "".
func (s *Shard) Location() (addr string, fleet uint16) {
	w := s.location.Load()
	return w.addr, w.fleet
}

// Address returns the address of the shard's Redis, or "" if it is not known.
func (s *Shard) Address() string { return cmp.Or(s.location.Load().addr, s.all.Config.Address) }
