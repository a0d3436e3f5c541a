package tiered

import (
	"cmp"
	"slices"
	"time"

	"github.com/tierlimit/tierlimit/breaker"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/remote"
)

// Stats is what a limiter has counted since it was made, and the state it is in. Counters only
// grow. They are read one after another while decisions go on, so that two of them may differ by
// what was decided in between.
//
// Package promlimit shows all of it to Prometheus, module otellimit to OpenTelemetry.
type Stats struct {
	// Since is when the limiter was made, and all counters were 0.
	Since time.Time
	// State is [Limiter.State].
	State State
	// FleetSize is [Limiter.FleetSize].
	FleetSize int
	// Shards are the masters of a Cluster that hold slots; one node, or Sentinel, is one.
	Shards []ShardStats

	// Rules are by name. Rules of one name are counted together, see [Rule.WithLimit].
	Rules []RuleStats
	// Sources are the sources of rules, by name, see [Limiter.SourceLoaded].
	Sources []SourceStats

	// Trips are those to Redis, and what they carried.
	Trips TripStats
	// Missed are decisions that Redis was to make and did not, while it was not lost.
	Missed MissedStats
	// Outages is how often a circuit breaker opened; each master of a Cluster has one.
	Outages uint64
	// MemoryLosses is how often Redis was found to have lost its memory, or a part of it.
	MemoryLosses uint64
	// UnchargedUnits were granted without Redis, and wait to be charged there.
	UnchargedUnits int64
	// ChargedBackUnits were granted without Redis, or forgotten by it, and charged there
	// afterwards.
	ChargedBackUnits uint64

	// RememberedDenials is how many keys' denials are remembered in process.
	RememberedDenials int
	// LeasedUnits are charged in Redis, and held to be spent in process.
	LeasedUnits int64
}

// ShardStats is the state of a master of a Cluster, or of the one node.
type ShardStats struct {
	// Master is its address; empty if Redis is no Cluster.
	Master string
	// State is who decides about its keys.
	State State
	// Breaker is the state of its circuit breaker.
	Breaker BreakerState
}

// BreakerState is the state of a circuit breaker.
type BreakerState uint8

const (
	// BreakerClosed: trips go to Redis.
	BreakerClosed BreakerState = iota
	// BreakerHalfOpen: Redis counts as lost, and a probe is under way.
	BreakerHalfOpen
	// BreakerOpen: Redis counts as lost.
	BreakerOpen
)

// String returns "closed", "half-open" or "open".
func (s BreakerState) String() string { return breaker.State(s).String() }

// RuleStats is what the rules of one name have decided.
type RuleStats struct {
	Name string
	// Decisions are those of rules that deny, one value for each tier, in the tiers' order;
	// nil if there was no such rule.
	Decisions []TierStats
	// DryRun are those of rules on a dry run, see [DryRun]: Allowed and Denied are what they
	// would have been. It is nil if there was no such rule.
	DryRun []TierStats
	// Errors are calls that ended with an error instead of a decision.
	Errors ErrorStats
	// Shadow compares decisions with those of the exact log, see [Shadow]; nil if no rule has
	// one.
	Shadow *ShadowStats
}

// TierStats is how many decisions a tier has made.
type TierStats struct {
	Tier            limit.Tier
	Allowed, Denied uint64
	// HeldBack were not denied by the rule, but by another one of the same request, see
	// [Limiter.AllowAll].
	HeldBack uint64
}

// ErrorStats is how many calls ended with an error, by its reason.
type ErrorStats struct {
	Invalid   uint64 // the call was a mistake: a key, cost or rule that cannot be
	Cancelled uint64 // the caller's context ended before there was an answer
	Closed    uint64 // the limiter was closed
	Other     uint64
}

// Total is the sum of all reasons.
func (e ErrorStats) Total() uint64 { return e.Invalid + e.Cancelled + e.Closed + e.Other }

// ShadowStats is how decisions of sampled keys compare with those of the exact log.
type ShadowStats struct {
	Agreed, WronglyAllowed, WronglyDenied uint64
	// Comparisons that were not made: too many waited, or the log could not be asked.
	LeftOutQueueFull, LeftOutError uint64
}

// SourceStats is what became of a source of rules, such as a file.
type SourceStats struct {
	Name string
	// Loads were put in force, Failures could not be.
	Loads, Failures uint64
	// InForce reports whether the source as last read is in force.
	InForce bool
	// LastSuccess is when what is in force was loaded; zero if nothing ever was.
	LastSuccess time.Time
}

// TripStats are the trips to Redis.
type TripStats struct {
	// Seconds is how long they took. A trip ends at the deadline; the wait for its turn is not
	// included.
	Seconds Histogram
	// Calls is how many calls one trip answered.
	Calls Histogram
	// Errors are trips that failed, by kind: timeout, unreachable, auth, unavailable, protocol
	// and other. All are there, at 0 if there was none.
	Errors map[string]uint64
}

// MissedStats are decisions that missed Redis, by the reason.
type MissedStats struct {
	NoRoom    uint64 // more waited than Redis could have decided in time
	NotInTime uint64 // no answer before the deadline, or an error
}

// Histogram is how many values there were of which size.
type Histogram struct {
	// Bounds are the upper bounds of the buckets, inclusive and ascending.
	Bounds []float64
	// Counts are the values in each bucket, not in those below it as well. The last, for which
	// there is no bound, has those above all bounds.
	Counts []uint64
	// Sum is that of all values.
	Sum float64
}

// Count is how many values there were.
func (h Histogram) Count() (n uint64) {
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// Stats returns what the limiter has counted and how it is, without a trip to Redis. The result
// is the caller's. It reads all counters of all rules, which takes some microseconds for each
// rule, and keeps no decision waiting: call it every second, say, rather than for every request.
// After Close it tells what was. It is safe for concurrent use.
func (l *Limiter) Stats() Stats {
	c := l.metrics
	uncharged, _ := l.ledger.Waiting()
	s := Stats{
		Since:     l.start.Add(beforeStart),
		State:     l.State(),
		FleetSize: l.FleetSize(),
		Trips:     TripStats{Seconds: c.trips.stats(), Calls: c.tripCalls.stats(), Errors: make(map[string]uint64)},
		Missed:    MissedStats{NoRoom: c.noRoom.Load(), NotInTime: c.notInTime.Load()},

		Outages:           c.opened.Load(),
		MemoryLosses:      c.amnesia.Load(),
		UnchargedUnits:    uncharged,
		ChargedBackUnits:  c.charged.Load(),
		RememberedDenials: l.rememberedDenials(),
		LeasedUnits:       l.leasedUnits(),
	}
	for _, kind := range remote.Kinds() {
		s.Trips.Errors[string(kind)] = c.errors[kind].Load()
	}
	for _, shard := range l.shards.InUse() {
		master, _, _ := shard.Where()
		s.Shards = append(s.Shards, ShardStats{
			Master: master, State: shard.State(), Breaker: BreakerState(shard.Breaker.State()),
		})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, r := range c.rules {
		s.Rules = append(s.Rules, r.stats(name))
	}
	for _, source := range c.sources {
		s.Sources = append(s.Sources, *source)
	}
	slices.SortFunc(s.Rules, func(a, b RuleStats) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(s.Sources, func(a, b SourceStats) int { return cmp.Compare(a.Name, b.Name) })
	return s
}

func (r *ruleCounters) stats(name string) RuleStats {
	s := RuleStats{
		Name:      name,
		Decisions: r.decisions.stats(),
		DryRun:    r.dryRun.stats(),
		Errors:    r.failed.stats(),
	}
	if c := r.shadow; c != nil {
		s.Shadow = &ShadowStats{
			Agreed: c.agreed.Load(), WronglyAllowed: c.wronglyAllowed.Load(), WronglyDenied: c.wronglyDenied.Load(),
			LeftOutQueueFull: c.full.Load(), LeftOutError: c.failed.Load(),
		}
	}
	return s
}

func (f *failures) stats() ErrorStats {
	return ErrorStats{
		Invalid:   f[reasonInvalid].Load(),
		Cancelled: f[reasonCancelled].Load(),
		Closed:    f[reasonClosed].Load(),
		Other:     f[reasonOther].Load(),
	}
}

// SourceLoaded counts a load of a named source of rules, such as a file's path, for [Stats]: one
// that was put in force, see [Limiter.PutInForceFrom], or with an error one that could not be.
// Package rulesfile calls it; a program with a source of its own may as well.
func (l *Limiter) SourceLoaded(source string, err error) {
	c := l.metrics
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sources[source]
	if s == nil {
		s = &SourceStats{Name: source}
		c.sources[source] = s
	}
	if s.InForce = err == nil; s.InForce {
		s.Loads++
		s.LastSuccess = time.Now()
	} else {
		s.Failures++
	}
}
