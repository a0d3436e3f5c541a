package tiered

import (
	"maps"
	"slices"
	"time"

	"github.com/tierlimit/tierlimit/breaker"
	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/remote"
)

// Stats has a limiter's counters since it was made, and its state. Counters never decrease, except those of
// a rule that comes back; see Rules. They are read one after another while decisions are made, so they may differ
// by the decisions made in between.
//
// Package promlimit exports all of Stats to Prometheus, and module otellimit to OpenTelemetry.
type Stats struct {
	// Since is the time at which the limiter was made, with all counters at 0.
	Since time.Time
	// State is [Limiter.State].
	State State
	// TimeInState is how long the limiter has been in each state. After a change of State, it is out of
	// date for some milliseconds.
	TimeInState map[State]time.Duration
	// FleetSize is [Limiter.FleetSize].
	FleetSize int
	// Shards has an element for each master of a Cluster that holds slots. Without a Cluster it has one
	// element.
	Shards []ShardStats

	// Rules is sorted by name. All rules of one name are counted together; see [Rule.WithLimit]. A name is left
	// out when no rule of it is in force any more, some time after the garbage collector has found that the program
	// uses none. If a rule of the name is made again, its counters start from 0. A reader may see such smaller
	// counters without having seen a result that lacks the name, if that result went to another reader.
	Rules []RuleStats
	// Sources has the files, or other sources, that rules were loaded from, sorted by name; see
	// [Limiter.SourceLoaded]. It is nil if there are none.
	Sources []SourceStats

	// Trips describes the round trips to Redis.
	Trips TripStats
	// Missed counts decisions that Redis should have made and did not, while it was not lost. The
	// rules' outage policies made them.
	Missed MissedStats
	// Outages is the number of times that a circuit breaker opened. Each master of a Cluster has its own
	// breaker.
	Outages uint64
	// MemoryLosses is the number of times that Redis was found to have lost its data, or a part of it.
	MemoryLosses uint64
	// UnchargedUnits is the number of units that were granted without Redis and are still to be
	// charged there.
	UnchargedUnits int64
	// ChargedBackUnits is the number of units that were granted without Redis, or lost by it, and
	// have been charged there afterwards.
	ChargedBackUnits uint64

	// RememberedDenials is the number of keys whose denial this process remembers. It includes denials that are
	// over, until other keys take their places.
	RememberedDenials int
	// LeasedUnits is the number of units that this process has on lease and has not spent.
	LeasedUnits int64
	// Holds has the numbers of holds, for costs that are known afterwards; see [Rule.Hold].
	Holds HoldStats
	// Slots has the numbers of slots of concurrency limits; see [Rule.Acquire].
	Slots SlotStats
}

// SlotStats says what this process holds under limits of [limit.Concurrent].
type SlotStats struct {
	// Units is the number of units that are held now.
	Units int64
	// Lost is the number of slots that were lost before they were released, because they could
	// not be renewed in time.
	Lost uint64
}

// ShardStats is the state of one master of a Cluster, or of the single node.
type ShardStats struct {
	// Master is the master's address, "host:port". It is empty without a Cluster.
	Master string
	// State says who decides for the master's keys.
	State State
	// Breaker is the state of the master's circuit breaker.
	Breaker BreakerState
}

// BreakerState is the state of a circuit breaker.
type BreakerState uint8

const (
	// BreakerClosed means that trips go to Redis.
	BreakerClosed BreakerState = iota
	// BreakerHalfOpen means that Redis counts as lost, and a probe is in flight.
	BreakerHalfOpen
	// BreakerOpen means that Redis counts as lost.
	BreakerOpen
)

// String returns "closed", "half-open" or "open".
func (s BreakerState) String() string { return breaker.State(s).String() }

// RuleStats counts the decisions of all rules of one name.
type RuleStats struct {
	Name string
	// Decisions has an element for each tier, in the order of [limit.Tier]. It counts rules that are not
	// on a dry run, and is nil if there are no such rules.
	Decisions []TierStats
	// DryRun is the same for rules on a dry run; see [DryRun]. Allowed and Denied say what the decisions
	// would have been. It is nil if there are no such rules.
	DryRun []TierStats
	// Errors counts calls that ended with an error instead of a decision.
	Errors ErrorStats
	// Shadow compares decisions with those of the exact log; see [Shadow]. It is nil if no rule of the
	// name has a shadow.
	Shadow *ShadowStats
}

// TierStats counts the decisions of a tier.
type TierStats struct {
	Tier            limit.Tier
	Allowed, Denied uint64
	// HeldBack counts decisions that would have allowed a request which another rule denied; see
	// [Limiter.AllowAll].
	HeldBack uint64
}

// ErrorStats counts calls that ended with an error, by reason.
type ErrorStats struct {
	Invalid   uint64 // a mistake of the caller: the key, the cost, the life of a hold, or a wrong rule for the call
	Cancelled uint64 // the caller's context ended before there was an answer
	Closed    uint64 // the limiter was closed
	Other     uint64
}

// Total returns the sum of all reasons.
func (e ErrorStats) Total() uint64 { return e.Invalid + e.Cancelled + e.Closed + e.Other }

// ShadowStats compares decisions of sampled keys with those of the exact log.
type ShadowStats struct {
	Agreed, WronglyAllowed, WronglyDenied uint64
	// LeftOutQueueFull and LeftOutError count comparisons that were not made, because too many waited, or
	// because asking the log failed.
	LeftOutQueueFull, LeftOutError uint64
}

// SourceStats has the results of loading rules from a source, such as a file.
type SourceStats struct {
	Name string
	// Loads is how often the source's rules were put in force, and Failures is how often they could not
	// be.
	Loads, Failures uint64
	// InForce reports whether the last attempt to load the source succeeded, so that the rules last read
	// are in force.
	InForce bool
	// LastSuccess is the time at which the rules in force were loaded, or zero if none ever were.
	LastSuccess time.Time
}

// TripStats describes the round trips to Redis.
type TripStats struct {
	// Seconds has the duration of each trip, up to the deadline, without the time that calls wait
	// for a trip to begin.
	Seconds Histogram
	// Calls has the number of calls that each trip answered.
	Calls Histogram
	// Errors has the number of trips that failed, and of heartbeats and probes, by kind: "timeout",
	// "unreachable", "auth", "unavailable", "protocol" and "other". It always has all kinds. In an
	// outage there are no trips, but probes.
	Errors map[string]uint64
}

// MissedStats counts decisions that Redis should have made and did not, by reason.
type MissedStats struct {
	NoRoom    uint64 // more calls waited than Redis could decide in time
	NotInTime uint64 // no answer before the deadline, or none expected, or an error
	OwnTime   uint64 // no answer within the time that the program gave the call, see DecideBy
}

// Histogram counts values by size.
type Histogram struct {
	// Bounds are the upper bounds of the buckets, inclusive and ascending.
	Bounds []float64
	// Counts has the number of values in each bucket. Unlike in Prometheus, a bucket does not include the
	// buckets below it. There is one more count than bounds: the last bucket has no bound.
	Counts []uint64
	// Sum is the sum of all values.
	Sum float64
}

// Count returns the number of all values.
func (h Histogram) Count() (n uint64) {
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// Stats returns the limiter's counters and state. It makes no trip to Redis and delays no decision. It
// reads all counters of all rules, which takes some microseconds per rule, so do not call it for every
// request. The result belongs to the caller. After Close, Stats returns the counters as of Close. Stats
// is safe for concurrent use.
func (l *Limiter) Stats() Stats {
	c, counts := l.metrics, &l.shards.Counts
	s := Stats{
		Since:       l.start.Add(beforeStart),
		State:       l.State(),
		TimeInState: l.shards.TimeSpent(),
		FleetSize:   l.FleetSize(),
		Trips:       TripStats{Seconds: c.trips.stats(), Calls: c.tripCalls.stats(), Errors: make(map[string]uint64)},
		Missed: MissedStats{
			NoRoom: counts.Missed[outage.NoRoom].Load(), NotInTime: counts.Missed[outage.NotInTime].Load(), OwnTime: counts.Missed[outage.OwnTime].Load(),
		},

		Outages:           counts.Opened.Load(),
		MemoryLosses:      counts.DataLosses.Load(),
		UnchargedUnits:    l.shards.Uncharged(),
		ChargedBackUnits:  uint64(counts.Charged.Load()),
		RememberedDenials: l.denials.Len(),
		LeasedUnits:       l.leases.Left(),
	}
	for _, slots := range l.slots.table.Counts() {
		s.Slots.Units += slots.Units
		s.Slots.Lost += slots.Lost
	}
	for _, kind := range remote.Kinds() {
		s.Trips.Errors[string(kind)] = c.errors[kind].Load()
	}
	for _, shard := range l.shards.InUse() {
		master, _ := shard.Location()
		s.Shards = append(s.Shards, ShardStats{
			Master: master, State: shard.State(), Breaker: BreakerState(shard.Breaker.State()),
		})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetIdle()
	s.Holds = c.past.holds
	for _, name := range slices.Sorted(maps.Keys(c.rules)) {
		s.Rules = append(s.Rules, c.rules[name].stats(name))
		s.Holds.add(&c.rules[name].holds)
	}
	for _, name := range slices.Sorted(maps.Keys(c.sources)) {
		s.Sources = append(s.Sources, *c.sources[name])
	}
	return s
}

func (r *ruleCounters) stats(name string) RuleStats {
	s := RuleStats{
		Name:      name,
		Decisions: r.decisions.stats(),
		DryRun:    r.dryRun.stats(),
		Errors:    r.failed.stats(),
	}
	if c := &r.shadow; r.shadowed.Load() {
		s.Shadow = &ShadowStats{
			Agreed: c.agreed.Load(), WronglyAllowed: c.wronglyAllowed.Load(), WronglyDenied: c.wronglyDenied.Load(),
			LeftOutQueueFull: c.full.Load(), LeftOutError: c.failed.Load(),
		}
	}
	return s
}

// SourceLoaded records for [Stats] that rules were loaded from a source, such as a file (named by its
// path), and put in force; see [Limiter.PutInForceFrom]. With an error, it records that they could not be
// put in force. Package rulesfile calls it. Programs that load rules from elsewhere may call it, too. It
// is safe for concurrent use.
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
