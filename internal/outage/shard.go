package outage

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlimit/tierlimit/breaker"
	"github.com/tierlimit/tierlimit/internal/wake"
	"github.com/tierlimit/tierlimit/remote"
)

// Shard is the state of the Redis server that has a key: whether it can be reached, how many instances
// share it, and whether it knows of all grants. A single node has one shard. A Cluster has one shard for
// each master, so the loss of a master does not affect the keys of the others.
//
// A Shard is safe for concurrent use.
type Shard struct {
	Decider                  // asks the master
	Breaker *breaker.Breaker // closed while Redis decides

	all     *Shards
	index   int
	fleet   Membership
	charger charger
	memory  memory
	misses  misses

	suspicions     wake.Signal  // signal that Redis may have lost its data
	reported       State        // last state reported by reportChanges, which alone uses this and the next two
	reportedAt     time.Time    // when that state was reported
	unhealthySince time.Time    // since when the reported state is not healthy
	changedAt      atomic.Int64 // when the state last changed, in Unix nanoseconds

	location atomic.Pointer[location]

	silence atomic.Pointer[silence] // nil while Redis answers
	failure atomic.Pointer[failure] // the last failure; nil: none so far
	// failedHeartbeats is the number of heartbeats since the last answered one. The breaker stays closed if trips
	// succeed nevertheless: heartbeats need their own commands and keys, and the Redis user may have lost
	// the right to those.
	failedHeartbeats atomic.Int32
	// beats is the number of answered heartbeats after those of the start.
	beats atomic.Int32

	// incident is an outage or the settling after it; nil while Redis decides alone. It is replaced only
	// under mu.
	incident atomic.Pointer[incident]
	mu       sync.Mutex
}

// newShard makes a shard. assumed is the fleet's size until Redis reports it.
func (l *Shards) newShard(index, assumed int) *Shard {
	s := &Shard{
		all:        l,
		index:      index,
		charger:    charger{wake: wake.NewSignal()},
		suspicions: wake.NewSignal(),
		reportedAt: time.Now(),
	}
	s.changedAt.Store(s.reportedAt.UnixNano())
	s.location.Store(&location{})
	s.Breaker = breaker.New(ProbeEvery, s.breakerChanged)
	s.Decider, s.fleet = l.Connect(s, assumed)
	return s
}

// Index returns the shard's number, which does not change.
func (s *Shard) Index() int { return s.index }

// run starts the shard's background work.
func (s *Shard) run() {
	s.all.Go(s.keep)
	s.all.Go(func() { s.charger.wake.Run(s.all.Context, s.chargeSome) })
}

// State is the state of a shard.
func (s *Shard) State() State {
	switch {
	case !s.Breaker.Closed():
		return Outage
	case s.incident.Load() != nil:
		return Settling
	}
	return Healthy
}

// leave ends the membership in the fleet.
func (s *Shard) leave() error {
	if !s.inUse() || !s.fleet.Heard() || !s.Breaker.Closed() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.all.Deadline)
	defer cancel()
	if err := s.fleet.Leave(ctx); !remote.IsMoving(err) {
		return err
	}
	return nil // the membership expires by itself
}
