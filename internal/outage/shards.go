package outage

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlimit/tierlimit/breaker"
	"github.com/tierlimit/tierlimit/internal/durations"
	"github.com/tierlimit/tierlimit/internal/wake"
	"github.com/tierlimit/tierlimit/local/ledger"
	"github.com/tierlimit/tierlimit/remote"
)

// Config has the common parameters and dependencies of shards. All functions may be called from several
// goroutines at the same time.
type Config struct {
	// Context ends all background work. Its owner then waits for everything that was started with Go.
	Context context.Context
	Go      func(func())
	// Now returns the time in ns, on a clock that does not go backwards.
	Now func() int64

	Deadline  time.Duration    // of a decision, and of a heartbeat
	ColdStart ledger.ColdStart // if this process begins without Redis
	Assumed   int              // number of instances to assume until Redis has reported it
	Largest   int              // the same if the program has stated it, otherwise 0
	Instance  string           // unique name of this instance in Redis
	Ledger    *ledger.Ledger[*Rule]

	// Connect makes a shard's connection to its master. assumed is the fleet's size until Redis reports
	// it. Each trip first asks the shard's Breaker, and ends with [Shard.TripEnded].
	Connect func(s *Shard, assumed int) (Decider, Membership)

	// Masters returns which masters of a Cluster have which slots, and Refresh makes the client ask the
	// Cluster again. MayHaveChanged reports whether there was a sign, since it was last called, that
	// slots have moved to other masters. Slot returns the slot of a key. Without a Cluster these
	// functions are nil.
	Masters        func(context.Context) (*remote.Masters, error)
	Refresh        func(context.Context)
	MayHaveChanged func() bool
	Slot           func(remote.UserKey) uint16

	// Address is Redis's address for log lines, if Redis is a single node and the address is known.
	Address string
	// Explain adds details to an error of asking Redis. Hint returns what may be wrong with the settings
	// if Redis cannot be reached at the start, or "". Joined is called when a shard's first heartbeat at the
	// start was answered. BeforeHeartbeat is called before each regular heartbeat or probe, and HeartbeatFailed with
	// the error of each heartbeat and probe that fails, also at the start; HeartbeatFailed may be nil.
	Explain         func(error) error
	Hint            func(error) string
	Joined          func(*Shard)
	BeforeHeartbeat func()
	HeartbeatFailed func(error)
	// Size is called with the fleet's size at each heartbeat, and Changed when [Shards.State] has
	// changed. Both may be nil.
	Size    func(int)
	Changed func(State)
	// BreakerChanged is called when a shard's breaker opens or closes; it must not wait. DataLost is
	// called when a shard's Redis has lost its data.
	BreakerChanged func()
	DataLost       func(*Shard)

	Log Log
}

// Decider decides entries in Redis. It is implemented by [remote.Batcher].
type Decider interface {
	Decide(ctx context.Context, e remote.Entry) (remote.Reply, error)
	DecideInto(ctx context.Context, e *remote.Entry, reply *remote.Reply) error
	DecideAll(ctx context.Context, entries []remote.Entry, within time.Duration) ([]remote.Reply, error)
	DecideApart(entries []remote.Entry, within time.Duration) []remote.Reply
	// Answered returns how many decisions have been made in time so far. HasWaiters reports whether any caller
	// waits for a decision.
	Answered() int64
	HasWaiters() bool
	// TurnsAway reports whether a call would find no room and be turned away at once.
	TurnsAway() bool
	// DelayDenied delays a caller that is denied without Redis, if many callers are denied.
	DelayDenied(ctx context.Context)
	Close()
}

// Membership is this instance's membership in the fleet, kept by heartbeats. It is implemented by
// [remote.Fleet].
type Membership interface {
	Heartbeat(ctx context.Context, unsettled bool, lost ...remote.Loss) (remote.Heard, error)
	Leave(ctx context.Context) error
	Size() int
	Heard() bool
	MoveTo(slot uint16, size int)
}

// Counts are the numbers of events so far.
type Counts struct {
	Opened     atomic.Uint64              // times that a breaker opened
	DataLosses atomic.Uint64              // times that Redis lost its data
	Charged    atomic.Int64               // units charged in Redis that were granted without it, or lost by it
	Missed     [OwnTime + 1]atomic.Uint64 // decisions missed although Redis was not lost, by reason
}

// Log logs events, each kind at a limited rate.
type Log interface {
	Warn(kind, message string, args ...any)
	Info(kind, message string, args ...any)
}

// Shards are the shards of a limiter. They are safe for concurrent use.
type Shards struct {
	Config
	Counts Counts
	// Windows are the windows of all rules. They are kept apart, so that what refers to them does not keep the shards.
	Windows *durations.Set

	first  *Shard // the only shard, except on a Cluster
	routes atomic.Pointer[routes]

	changes    wake.Signal // signal that the state of a shard, or the set of shards in use, has changed
	stateTimes stateTimes
	incidents  atomic.Uint32 // number of the last incident of all shards
	charges    charges
	sequences  atomic.Int64 // of all shards' charges
}

// New returns shards that have not contacted Redis; see [Shards.Join].
func New(c Config) *Shards {
	l := &Shards{Config: c, Windows: new(durations.Set), changes: wake.NewSignal(), stateTimes: stateTimes{since: time.Now()}}
	l.first = l.newShard(0, c.Assumed)
	l.first.location.Store(&location{slots: remote.SlotCount})
	alone := []*Shard{l.first}
	l.routes.Store(&routes{shards: alone, used: alone})
	if l.onCluster() {
		c.Ledger.GroupBy(remote.SlotCount, func(key string) int { return int(c.Slot(remote.UserKey(key))) })
	}
	return l
}

// HasWaiters reports whether any caller waits for an answer of Redis.
func (l *Shards) HasWaiters() bool {
	return slices.ContainsFunc(l.InUse(), func(s *Shard) bool { return s.Decider.HasWaiters() })
}

// Run starts the background work.
func (l *Shards) Run() {
	l.Go(l.reportChanges)
	for _, s := range l.InUse() {
		s.run()
	}
	if l.onCluster() {
		l.Go(l.followCluster)
	}
}

// Close fails waiting decisions and refuses further ones. It waits for trips in flight.
func (l *Shards) Close() {
	_ = l.every(func(s *Shard) error { s.Decider.Close(); return nil })
}

// Leave ends the memberships in the fleet on all masters that can be reached.
func (l *Shards) Leave() error { return l.every((*Shard).leave) }

// every calls f for all shards at the same time, including those not in use.
func (l *Shards) every(f func(*Shard) error) error {
	shards := l.routes.Load().shards
	errs := make([]error, len(shards))
	var all sync.WaitGroup
	for i, s := range shards {
		all.Go(func() { errs[i] = f(s) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// FleetSize returns the number of instances that share the limits, as last reported by Redis, or as
// assumed if Redis has not reported it.
func (l *Shards) FleetSize() int { return cmp.Or(l.fleetSizes()) }

// Heard reports whether Redis has reported the fleet's size.
func (l *Shards) Heard() bool {
	heard, _ := l.fleetSizes()
	return heard > 0
}

// fleetSizes returns two sizes of the fleet: the largest one that masters have reported, or 0 if none
// has, and the largest one that is assumed for the other masters.
func (l *Shards) fleetSizes() (heard, assumed int) {
	for _, s := range l.InUse() {
		if s.fleet.Heard() {
			heard = max(heard, s.fleet.Size())
		} else {
			assumed = max(assumed, s.fleet.Size())
		}
	}
	return heard, assumed
}

// State returns the worst state of any shard.
func (l *Shards) State() State {
	state := Healthy
	for _, s := range l.InUse() {
		state = worse(state, s.State())
	}
	return state
}

// BreakerState returns the breaker state that is furthest from closed.
func (l *Shards) BreakerState() breaker.State {
	state := breaker.Closed
	for _, s := range l.InUse() {
		state = max(state, s.Breaker.State())
	}
	return state
}

// Reason returns the last error of asking a lost Redis, or nil if no Redis is lost.
func (l *Shards) Reason() (reason error) {
	for _, s := range l.InUse() {
		if _, err := s.LastFailure(); err != nil && s.State() == Outage {
			reason = err
		}
	}
	return reason
}
