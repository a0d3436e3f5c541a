package tiered

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/remote"
)

const (
	// maxShards bounds what is kept for the masters of a Cluster. Should there be more,
	// some share a shard.
	maxShards = 256
	// lookEvery is how often it is looked at who has which slots, and askEvery how often
	// the client is made to ask the Cluster, be there a reason or not.
	lookEvery = time.Second
	askEvery  = 5 * time.Second
)

// clusterMap says which shard has which slot of a Cluster.
type clusterMap struct {
	client *redis.ClusterClient
	routes atomic.Pointer[routes]
}

// routes are immutable.
type routes struct {
	of     [remote.SlotCount]uint8 // position in shards, by slot
	shards []*shard                // all there ever were: they are used again
	used   []*shard                // those whose masters have slots
}

// where is a shard's place in a Cluster.
type where struct {
	addr  string // of its master
	slots int    // that it has; 0: it is not in use
	fleet uint16 // the slot in which the fleet meets
}

// newClusterMap is the map of a Cluster that nothing is known of yet.
func newClusterMap(client *redis.ClusterClient, first *shard) *clusterMap {
	m := &clusterMap{client: client}
	first.where.Store(&where{slots: remote.SlotCount})
	m.routes.Store(&routes{shards: []*shard{first}, used: []*shard{first}})
	return m
}

// shardOf is the shard of a key. Should its slot have moved just now, that is the wrong
// one: the client finds the right master all the same.
func (l *Limiter) shardOf(key *callKey) *shard {
	if l.cluster == nil {
		return l.shard
	}
	return l.shardOfKey(key.inRedis())
}

func (l *Limiter) shardOfKey(key remote.UserKey) *shard {
	if l.cluster == nil {
		return l.shard
	}
	r := l.cluster.routes.Load()
	return r.shards[r.of[l.keys.Slot(key)]]
}

// shards are those in use.
func (l *Limiter) shards() []*shard {
	if l.cluster == nil {
		return l.alone
	}
	return l.cluster.routes.Load().used
}

// everyShard does something for all shards at the same time, those not in use included.
func (l *Limiter) everyShard(f func(*shard) error) error {
	shards := l.alone
	if l.cluster != nil {
		shards = l.cluster.routes.Load().shards
	}
	errs := make([]error, len(shards))
	var all sync.WaitGroup
	for i, s := range shards {
		all.Go(func() { errs[i] = f(s) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// inUse reports whether the shard's master has slots.
func (s *shard) inUse() bool {
	w := s.where.Load()
	return w == nil || w.slots > 0
}

// has says which groups of the ledger are the shard's.
func (s *shard) has() func(group int) bool {
	if s.limiter.cluster == nil {
		return func(int) bool { return true }
	}
	r := s.limiter.cluster.routes.Load()
	return func(slot int) bool { return int(r.of[slot]) == s.index }
}

// kind is a kind of log lines, of this shard.
func (s *shard) kind(of string) string {
	if s.limiter.cluster == nil {
		return of
	}
	return of + " " + strconv.Itoa(s.index)
}

// name is what log lines call the shard.
func (s *shard) name() []any {
	w := s.where.Load()
	if w == nil || w.addr == "" {
		return nil
	}
	return []any{"master", w.addr, "slots", w.slots}
}

// meetCluster asks a Cluster for its masters. If it cannot be reached, its keys have one
// shard until it can.
func (l *Limiter) meetCluster() error {
	var masters *remote.Masters
	err := l.withinStart(func(ctx context.Context) (err error) {
		masters, err = remote.MastersOf(ctx, l.cluster.client)
		return err
	})
	if err == nil { // or else it may still be written
		l.reroute(masters)
	}
	return err
}

// followCluster runs in the background.
func (l *Limiter) followCluster() {
	look, ask := time.NewTicker(lookEvery), time.NewTicker(askEvery)
	defer look.Stop()
	defer ask.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-ask.C:
			remote.RefreshMasters(l.ctx, l.cluster.client)
		case <-look.C:
			if masters, err := remote.MastersOf(l.ctx, l.cluster.client); err == nil {
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
func (l *Limiter) reroute(m *remote.Masters) (added []*shard) {
	old := l.cluster.routes.Load()
	next := &routes{shards: old.shards}
	heirs := old.heirs(m)
	for i := range heirs {
		if heirs[i] != nil {
			continue
		}
		if heirs[i] = next.unused(heirs); heirs[i] != nil {
			continue
		}
		if len(next.shards) == maxShards {
			heirs[i] = next.shards[i%maxShards]
			continue
		}
		heirs[i] = l.newShard(len(next.shards), l.FleetSize())
		heirs[i].where.Store(&where{})
		next.shards = append(next.shards[:len(next.shards):len(next.shards)], heirs[i])
		added = append(added, heirs[i])
	}
	places := make([]where, len(next.shards))
	for i, s := range heirs {
		places[s.index].addr = m.Addrs[i]
	}
	for slot, master := range m.Of {
		s := heirs[master]
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
		l.tell(change{}) // the worst state may be another
	}
	return added
}

// heirs is the shard of each master: the one it had; or, if it had none, the one of a
// master that has no slots any more, most of which it has now. It is nil where there is
// none.
func (r *routes) heirs(m *remote.Masters) []*shard {
	heirs := make([]*shard, len(m.Addrs))
	taken := make([]bool, len(r.shards))
	for i, addr := range m.Addrs {
		for _, s := range r.shards {
			if w := s.where.Load(); w.slots > 0 && w.addr == addr && !taken[s.index] {
				heirs[i], taken[s.index] = s, true
			}
		}
	}
	common := make([][maxShards]int, len(m.Addrs)) // slots, by shard
	for slot, master := range m.Of {
		common[master][r.of[slot]]++
	}
	for i := range heirs {
		if heirs[i] != nil {
			continue
		}
		most := 0
		for _, s := range r.shards {
			if n := common[i][s.index]; n > most && !taken[s.index] {
				heirs[i], most = s, n
			}
		}
		if heirs[i] != nil {
			taken[heirs[i].index] = true
		}
	}
	return heirs
}

// unused is a shard whose master has lost all its slots, nil if there is none.
func (r *routes) unused(heirs []*shard) *shard {
	for _, s := range r.shards {
		if !s.inUse() && !slices.Contains(heirs, s) {
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
func (l *Limiter) inherit(old, next *routes) {
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
func (s *shard) adopt(from *shard) {
	if from.episode.Load() == nil {
		return
	}
	if !s.inUse() && !from.breaker.Closed() {
		s.failed(errInherited)
		s.breaker.ForceOpen(errInherited)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.uncharged() != nil || !s.breaker.Closed() {
		return
	}
	now := s.limiter.now()
	s.begin(now, s.limiter.born).back.Store(max(1, now))
	s.changed(Settling)
}

// place tells shards where they are.
func (l *Limiter) place(r *routes, places []where) {
	heard := 0 // instances
	for _, s := range l.shards() {
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
