package outage

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/tierlimit/tierlimit/remote"
)

const (
	// maxShards bounds the number of shards of a Cluster. If there are more masters, some share a
	// shard.
	maxShards = 256
	// lookEvery is how often the client's table of slots is read, and askEvery how often the client
	// is made to ask the Cluster, even without a reason.
	lookEvery = time.Second
	askEvery  = 5 * time.Second
)

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

// meetCluster asks a Cluster for its masters. If it cannot be reached, its keys have one
// shard until it can.
func (l *Shards) meetCluster() error {
	var masters *remote.Masters
	err := l.WithinStart(func(ctx context.Context) (err error) {
		masters, err = l.Masters(ctx)
		return err
	})
	if err == nil { // otherwise it may still be written
		l.reroute(masters)
	}
	return err
}

// followCluster runs in the background.
func (l *Shards) followCluster() {
	look, ask := time.NewTicker(lookEvery), time.NewTicker(askEvery)
	defer look.Stop()
	defer ask.Stop()
	for {
		select {
		case <-l.Context.Done():
			return
		case <-ask.C:
			l.Refresh(l.Context)
		case <-look.C:
			if masters, err := l.Masters(l.Context); err == nil {
				for _, s := range l.reroute(masters) {
					s.run()
				}
			}
		}
	}
}

// reroute puts a new map in force, and returns the new shards. Shards outlive their masters: a
// replica that takes over all slots of a dead master also takes over its shard.
func (l *Shards) reroute(m *remote.Masters) (added []*Shard) {
	old := l.cluster.routes.Load()
	next := &routes{shards: old.shards}
	successors := old.successors(m)
	for i := range successors {
		if successors[i] != nil {
			continue
		}
		if successors[i] = next.unused(successors); successors[i] != nil {
			continue
		}
		if len(next.shards) == maxShards {
			successors[i] = next.shards[i%maxShards]
			continue
		}
		successors[i] = l.newShard(len(next.shards), l.FleetSize())
		successors[i].where.Store(&where{})
		next.shards = append(next.shards[:len(next.shards):len(next.shards)], successors[i])
		added = append(added, successors[i])
	}
	places := make([]where, len(next.shards))
	for i, s := range successors {
		places[s.index].addr = m.Addrs[i]
	}
	for slot, master := range m.Of {
		s := successors[master]
		next.of[slot] = uint8(s.index)
		w := &places[s.index]
		if w.slots == 0 || meetsBefore(uint16(slot), w.fleet) {
			w.fleet = uint16(slot)
		}
		w.slots++
	}
	for i, s := range next.shards {
		if places[i].slots > 0 {
			next.used = append(next.used, s)
		}
	}
	l.inherit(old, next)
	l.place(next, places)
	if next.of != old.of {
		l.cluster.routes.Store(next)
		l.tell(change{}) // the worst state may have changed
	}
	return added
}

// successors returns the shard of each master: the one it had, or the one of a master without slots
// now, most of whose slots it has taken over; nil if there is none.
func (r *routes) successors(m *remote.Masters) []*Shard {
	successors := make([]*Shard, len(m.Addrs))
	taken := make([]bool, len(r.shards))
	for i, addr := range m.Addrs {
		for _, s := range r.shards {
			if w := s.where.Load(); w.slots > 0 && w.addr == addr && !taken[s.index] {
				successors[i], taken[s.index] = s, true
			}
		}
	}
	common := make([][maxShards]int, len(m.Addrs)) // slots, by shard
	for slot, master := range m.Of {
		common[master][r.of[slot]]++
	}
	for i := range successors {
		if successors[i] != nil {
			continue
		}
		most := 0
		for _, s := range r.shards {
			if n := common[i][s.index]; n > most && !taken[s.index] {
				successors[i], most = s, n
			}
		}
		if successors[i] != nil {
			taken[successors[i].index] = true
		}
	}
	return successors
}

// unused returns a shard whose master has lost all its slots, or nil if there is none.
func (r *routes) unused(successors []*Shard) *Shard {
	for _, s := range r.shards {
		if !s.inUse() && !slices.Contains(successors, s) {
			return s
		}
	}
	return nil
}

// meetsBefore is an order of slots; the fleet's key is in a master's first slot in this order. So
// all instances choose the same slot, and it rarely changes when slots move. The order mixes slots,
// as tools move a master's lowest slots first.
func meetsBefore(a, b uint16) bool {
	const mask, odd = 0x2a5b, 40503
	return (a^mask)*odd%remote.SlotCount < (b^mask)*odd%remote.SlotCount
}

// inherit continues an outage, or the settling after it, in shards that receive slots.
func (l *Shards) inherit(old, next *routes) {
	seen := make(map[[2]uint8]bool)
	for slot := range next.of {
		from, to := old.of[slot], next.of[slot]
		if from == to || seen[[2]uint8{from, to}] {
			continue
		}
		seen[[2]uint8{from, to}] = true
		next.shards[to].adopt(old.shards[from])
	}
}

// errInherited opens the breaker of a shard that is made of one that is lost.
var errInherited = errors.New("the master that had its slots is lost")

// adopt makes a shard settle like the one that it gets slots from; a new one also counts as lost if
// that one does.
func (s *Shard) adopt(from *Shard) {
	if from.incident.Load() == nil {
		return
	}
	if !s.inUse() && !from.Breaker.Closed() {
		s.Failed(errInherited)
		s.Breaker.ForceOpen(errInherited)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.uncharged() != nil || !s.Breaker.Closed() {
		return
	}
	now := s.all.Now()
	s.begin(now, s.all.Born).back.Store(max(1, now))
	s.changed(Settling)
}

// place tells shards where they are.
func (l *Shards) place(r *routes, places []where) {
	heard := 0 // instances
	for _, s := range l.InUse() {
		if s.fleet.Heard() {
			heard = max(heard, s.fleet.Size())
		}
	}
	for i, s := range r.shards {
		was, is := s.where.Load(), places[i]
		if is.slots > 0 && (was.slots == 0 || was.addr == "" || was.fleet != is.fleet) {
			s.fleet.MoveTo(is.fleet, heard)
		}
		s.where.Store(&is)
	}
}

// Where returns the address of the shard's master, its number of slots, and the slot of the fleet's
// key there. Without a Cluster the address is "".
func (s *Shard) Where() (addr string, slots int, fleet uint16) {
	if w := s.where.Load(); w != nil {
		return w.addr, w.slots, w.fleet
	}
	return "", 0, 0
}
