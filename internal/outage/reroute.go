package outage

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tierlimit/tierlimit/remote"
)

const (
	// askEvery is how often the client is made to ask the Cluster which master has which slots, be there a
	// reason or not. A second later, it is looked at what it was told.
	askEvery = 5 * time.Second
	// lookEvery is how often it is looked at for looks times, after a sign that it may have changed. All slots are
	// looked at one by one: a few milliseconds of a processor.
	lookEvery = time.Second
	looks     = 5
)

// meetCluster asks a Cluster for its masters. If it cannot be reached, its keys have one
// shard until it can.
func (l *Shards) meetCluster() error {
	var masters *remote.Masters
	err := l.WithinStart(func(ctx context.Context) (err error) {
		masters, err = l.Masters(ctx)
		return err
	})
	if err == nil { // or else it may still be written
		l.reroute(masters)
	}
	return err
}

// followCluster runs in the background.
func (l *Shards) followCluster() {
	look, ask := time.NewTicker(lookEvery), time.NewTicker(askEvery)
	defer look.Stop()
	defer ask.Stop()
	left := 0 // looks
	for {
		select {
		case <-l.Context.Done():
			return
		case <-ask.C:
			l.Refresh(l.Context)
			left = max(left, 1)
		case <-look.C:
			if l.MayHaveChanged() {
				left = looks
			}
			if left == 0 {
				continue
			}
			left--
			if masters, err := l.Masters(l.Context); err == nil {
				for _, s := range l.reroute(masters) {
					s.run()
				}
			}
		}
	}
}

// reroute puts a new map in force, and returns the shards that are new. Shards outlive
// their masters: a replica that takes all slots over from a dead one takes over its shard
// with them.
func (l *Shards) reroute(m *remote.Masters) (added []*Shard) {
	old := l.routes.Load()
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
		l.routes.Store(next)
		l.tell(change{}) // the worst state may be another
	}
	return added
}

// successors is the shard of each master: the one it had; or, if it had none, the one of a
// master that has no slots any more, most of which it has now. It is nil where there is
// none.
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

// unused is a shard whose master has lost all its slots, nil if there is none.
func (r *routes) unused(successors []*Shard) *Shard {
	for _, s := range r.shards {
		if !s.inUse() && !slices.Contains(successors, s) {
			return s
		}
	}
	return nil
}

// meetsBefore is an order of slots, in which the fleet meets in a master's first one: all
// instances find the same, and slots that come and go seldom change it. It mixes them, as
// the lowest of a master are those that tools move first.
func meetsBefore(a, b uint16) bool {
	const mask, odd = 0x2a5b, 40503
	return (a^mask)*odd%remote.SlotCount < (b^mask)*odd%remote.SlotCount
}

// inherit lets an outage, or what follows it, go on where slots come to another shard.
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

// adopt makes a shard settle, or if it is new be lost, like the one that it gets slots from.
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
	s.begin(now).back.Store(max(1, now))
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
