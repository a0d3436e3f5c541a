package outage

import (
	"errors"
	"slices"
	"time"

	"github.com/tierlimit/tierlimit/remote"
)

const (
	// askEvery is how often the client is made to ask the Cluster which master has which slots, even if
	// there is no sign of a change. The answer is compared with the routes a second later.
	askEvery = 5 * time.Second
	// After a sign that slots may have moved, the client's table is compared with the routes every
	// lookEvery, looks times. A comparison takes a few milliseconds of processor time, because the client
	// is asked about each slot separately.
	lookEvery = time.Second
	looks     = 5
)

// followCluster runs in the background. It finds out when slots have moved to other masters.
func (l *Shards) followCluster() {
	look, ask := time.NewTicker(lookEvery), time.NewTicker(askEvery)
	defer look.Stop()
	defer ask.Stop()
	left := 0 // number of comparisons left
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

// reroute puts new routes in force, and returns the new shards. Shards outlive their masters: a replica
// that takes over all slots of a dead master also takes over its shard.
func (l *Shards) reroute(m *remote.Masters) (added []*Shard) {
	old := l.routes.Load()
	next := &routes{shards: old.shards}
	successors := old.successors(m)
	for i, s := range successors {
		if s != nil {
			continue
		}
		unused := slices.IndexFunc(next.shards, func(s *Shard) bool { return !s.inUse() && !slices.Contains(successors, s) })
		switch {
		case unused >= 0: // its master has lost all of its slots
			successors[i] = next.shards[unused]
		case len(next.shards) == maxShards:
			successors[i] = next.shards[i%maxShards]
		default:
			successors[i] = l.newShard(len(next.shards), l.FleetSize())
			next.shards = append(next.shards[:len(next.shards):len(next.shards)], successors[i])
			added = append(added, successors[i])
		}
	}
	places := make([]location, len(next.shards))
	for i, s := range successors {
		places[s.index].addr = m.Addrs[i]
	}
	for slot, master := range m.BySlot {
		s := successors[master]
		next.bySlot[slot] = uint8(s.index)
		w := &places[s.index]
		if w.slots == 0 || slotBefore(uint16(slot), w.fleet) {
			w.fleet = uint16(slot)
		}
		w.slots++
	}
	for i, s := range next.shards {
		if places[i].slots > 0 {
			next.used = append(next.used, s)
		}
	}
	receivers := l.inherit(old, next)
	l.place(next, places)
	if next.bySlot != old.bySlot {
		l.routes.Store(next)
		for _, s := range receivers {
			s.settleAnew() // only now the charger finds the units to be charged in its new slots
		}
		l.changes.Send() // the worst state may have changed
	}
	for i, addr := range m.Addrs {
		if s := successors[i]; addr == remote.NoMaster && s.Breaker.Closed() {
			s.Failed(errNowhere)
			s.Breaker.ForceOpen(errNowhere)
		}
	}
	return added
}

// errNowhere is the reason for opening the breaker of the shard that has the slots that no master has. That shard
// keeps the trips of the other shards free of commands that any node may get, and that none answers.
var errNowhere = errors.New("no master of the Cluster has these slots")

// successors returns the shard of each master. It is the shard that the master had. If the master had
// none, it is the shard of the vanished master that had most of its slots, or nil.
func (r *routes) successors(m *remote.Masters) []*Shard {
	successors := make([]*Shard, len(m.Addrs))
	for i, addr := range m.Addrs {
		for _, s := range r.shards {
			if s.location.Load().addr == addr {
				successors[i] = s
			}
		}
	}
	common := make([][maxShards]int, len(m.Addrs)) // number of common slots, by shard
	for slot, master := range m.BySlot {
		common[master][r.bySlot[slot]]++
	}
	for i, known := range successors {
		most := 0
		for _, s := range r.shards {
			if n := common[i][s.index]; known == nil && n > most && !slices.Contains(successors, s) {
				successors[i], most = s, n
			}
		}
	}
	return successors
}

// slotBefore defines an order of slots. The fleet's key is in the first of a master's slots in this
// order. So all instances find the same slot, and slots that come and go rarely change it. The order is
// not that of the numbers, because tools that move slots begin with a master's lowest numbers.
func slotBefore(a, b uint16) bool {
	const mask, odd = 0x2a5b, 40503
	return (a^mask)*odd%remote.SlotCount < (b^mask)*odd%remote.SlotCount
}

// inherit continues an outage, or the settling after it, in the shards that have received slots. It
// returns these shards.
func (l *Shards) inherit(old, next *routes) (receivers []*Shard) {
	seen := make(map[[2]uint8]bool)
	for slot := range next.bySlot {
		from, to := old.bySlot[slot], next.bySlot[slot]
		if from == to || seen[[2]uint8{from, to}] {
			continue
		}
		seen[[2]uint8{from, to}] = true
		if receiver := next.shards[to]; receiver.adopt(old.shards[from]) {
			receivers = append(receivers, receiver)
		}
	}
	return receivers
}

// errInherited is the reason for opening the breaker of a new shard that gets slots of a lost one.
var errInherited = errors.New("the master that these slots came from is lost")

// adopt puts a shard into the state of a shard that it gets slots from. The receiving shard settles. If
// it is new and the other shard's master is lost, it counts as lost too. If the other shard's Redis has
// lost grants, these are now missing in the receiving shard's Redis. adopt reports whether there was
// anything to adopt.
func (s *Shard) adopt(from *Shard) bool {
	theirs := from.incident.Load()
	if theirs == nil {
		return false
	}
	if !s.inUse() && !from.Breaker.Closed() {
		s.Failed(errInherited)
		s.Breaker.ForceOpen(errInherited)
	}
	s.settleFromNow(func(e *incident, _ bool) {
		e.forgotten, e.clock, e.decides = max(e.forgotten, theirs.forgotten), max(e.clock, theirs.clock), max(e.decides, theirs.decides)
	})
	return true
}

// place records where the shards' masters are, and moves the fleet's key if the key's slot has changed.
func (l *Shards) place(r *routes, places []location) {
	heard, _ := l.fleetSizes()
	for i, s := range r.shards {
		was, is := s.location.Load(), places[i]
		if is.slots > 0 && (was.addr == "" || was.fleet != is.fleet) {
			s.fleet.MoveTo(is.fleet, heard)
		}
		s.location.Store(&is)
	}
}
