// Package metrics defines the names, help texts and labels under which the results of
// [tiered.Limiter.Stats] are exported. promlimit and otellimit share it, so that both have the same
// metrics.
package metrics

import (
	"github.com/tierlimit/tierlimit/tiered"
)

// Kind is the kind of a metric.
type Kind int

// The kinds.
const (
	Counter Kind = iota
	Gauge
	Histogram
)

// Metric is a metric of a limiter. Labels are few and bounded: the program chooses the names of rules,
// and nothing is labeled by key.
type Metric struct {
	Name, Help string
	Kind       Kind
	Labels     []string

	// Read calls emit for each value, with a value for each label. It is nil for a histogram.
	Read func(s *tiered.Stats, emit Emit)
	// Histogram returns a histogram, which has no labels. It is nil for other kinds.
	Histogram func(s *tiered.Stats) *tiered.Histogram
}

// Emit takes a value and the values of its labels.
type Emit func(value float64, labels ...string)

var states = []tiered.State{tiered.Healthy, tiered.Outage, tiered.Settling}

// counter returns a counter without labels.
func counter(name, help string, value func(*tiered.Stats) float64) Metric {
	return Metric{Name: name, Help: help, Read: func(s *tiered.Stats, emit Emit) { emit(value(s)) }}
}

// gauge returns a gauge without labels.
func gauge(name, help string, value func(*tiered.Stats) float64) Metric {
	m := counter(name, help, value)
	m.Kind = Gauge
	return m
}

// All returns all metrics, in the order of their description in docs/operating.md.
func All() []Metric {
	return []Metric{
		{
			Name:   "tierlimit_decisions_total",
			Help:   "Decisions by rule, deciding tier (redis, local, lease, fallback, overload) and outcome (allowed; denied; held_back: denied not by this rule, but by another one of the same request; for rules on a dry run would_allow, would_deny).",
			Labels: []string{"rule", "tier", "outcome"},
			Read:   decisions,
		},
		{
			Name:   "tierlimit_decision_errors_total",
			Help:   "Calls that ended with an error instead of a decision, by rule and reason (invalid, cancelled, closed, other).",
			Labels: []string{"rule", "reason"},
			Read: func(s *tiered.Stats, emit Emit) {
				for _, r := range s.Rules {
					emit(float64(r.Errors.Invalid), r.Name, "invalid")
					emit(float64(r.Errors.Cancelled), r.Name, "cancelled")
					emit(float64(r.Errors.Closed), r.Name, "closed")
					emit(float64(r.Errors.Other), r.Name, "other")
				}
			},
		},
		{
			Name:   "tierlimit_missed_decisions_total",
			Help:   "Decisions that Redis should have made and did not, although it was not lost, by reason (no_room: more were waiting than it could have made in time; not_in_time: no answer before the deadline, or an error; own_time: no answer within the time that the program gave the call).",
			Labels: []string{"reason"},
			Read: func(s *tiered.Stats, emit Emit) {
				emit(float64(s.Missed.NoRoom), "no_room")
				emit(float64(s.Missed.NotInTime), "not_in_time")
				emit(float64(s.Missed.OwnTime), "own_time")
			},
		},
		{
			Name:      "tierlimit_redis_trip_seconds",
			Help:      "Duration of trips to Redis.",
			Kind:      Histogram,
			Histogram: func(s *tiered.Stats) *tiered.Histogram { return &s.Trips.Seconds },
		},
		{
			Name:      "tierlimit_redis_trip_calls",
			Help:      "Calls answered by one trip to Redis.",
			Kind:      Histogram,
			Histogram: func(s *tiered.Stats) *tiered.Histogram { return &s.Trips.Calls },
		},
		{
			Name:   "tierlimit_redis_errors_total",
			Help:   "Failed trips to Redis, heartbeats and probes, by kind of failure.",
			Labels: []string{"kind"},
			Read: func(s *tiered.Stats, emit Emit) {
				for kind, n := range s.Trips.Errors {
					emit(float64(n), kind)
				}
			},
		},
		{
			Name: "tierlimit_breaker_state",
			Help: "Circuit breaker: 0 closed, 1 half-open, 2 open; on a Cluster, the highest value of all masters.",
			Kind: Gauge,
			Read: func(s *tiered.Stats, emit Emit) {
				highest := tiered.BreakerClosed
				for _, shard := range s.Shards {
					highest = max(highest, shard.Breaker)
				}
				emit(float64(highest))
			},
		},
		counter("tierlimit_breaker_opened_total", "How often the circuit breaker opened, even if for less than a scrape interval.",
			func(s *tiered.Stats) float64 { return float64(s.Outages) }),
		gauge("tierlimit_state", "Who decides: 0 Redis, 1 the outage policies, 2 both Redis and this instance's share; on a Cluster, the worst of all masters (1 is worse than 2).",
			func(s *tiered.Stats) float64 { return float64(s.State) }),
		{
			Name:   "tierlimit_state_seconds_total",
			Help:   "Seconds spent in each state (healthy, outage, settling); on a Cluster, in the worst state of all masters.",
			Labels: []string{"state"},
			Read: func(s *tiered.Stats, emit Emit) {
				for _, state := range states {
					emit(s.TimeInState[state].Seconds(), state.String())
				}
			},
		},
		{
			Name:   "tierlimit_shards",
			Help:   "Masters of a Cluster by state (healthy, outage, settling); a single node counts as one.",
			Kind:   Gauge,
			Labels: []string{"state"},
			Read: func(s *tiered.Stats, emit Emit) {
				for _, state := range states {
					shards := 0
					for _, shard := range s.Shards {
						if shard.State == state {
							shards++
						}
					}
					emit(float64(shards), state.String())
				}
			},
		},
		gauge("tierlimit_uncharged_units", "Units granted without Redis that wait to be charged there.",
			func(s *tiered.Stats) float64 { return float64(s.UnchargedUnits) }),
		counter("tierlimit_charged_back_units_total", "Units granted without Redis, or forgotten by it, that were charged there afterwards.",
			func(s *tiered.Stats) float64 { return float64(s.ChargedBackUnits) }),
		counter("tierlimit_amnesia_total", "How often Redis was found to have lost data, all or a part of it.",
			func(s *tiered.Stats) float64 { return float64(s.MemoryLosses) }),
		gauge("tierlimit_fleet_size", "Instances that share the limits, as last heard from Redis.",
			func(s *tiered.Stats) float64 { return float64(s.FleetSize) }),
		gauge("tierlimit_remembered_denials", "Keys whose denial is remembered in process.",
			func(s *tiered.Stats) float64 { return float64(s.RememberedDenials) }),
		gauge("tierlimit_leased_units", "Leased units: charged in Redis, and not yet spent by this process.",
			func(s *tiered.Stats) float64 { return float64(s.LeasedUnits) }),
		gauge("tierlimit_open_holds", "Holds of this process that are neither settled nor cancelled.",
			func(s *tiered.Stats) float64 { return float64(s.Holds.Open) }),
		gauge("tierlimit_open_hold_units", "Units of the open holds of this process.",
			func(s *tiered.Stats) float64 { return float64(s.Holds.Units) }),
		gauge("tierlimit_waiting_settlements", "Settlements of holds that wait for Redis.",
			func(s *tiered.Stats) float64 { return float64(s.Holds.Unsettled) }),
		counter("tierlimit_settlements_total", "Holds that were settled or cancelled.",
			func(s *tiered.Stats) float64 { return float64(s.Holds.Settled) }),
		counter("tierlimit_late_settlements_total", "Holds that were settled or cancelled after their end.",
			func(s *tiered.Stats) float64 { return float64(s.Holds.Late) }),
		counter("tierlimit_reclaimed_holds_total", "Holds that were settled or cancelled after their units had been given back.",
			func(s *tiered.Stats) float64 { return float64(s.Holds.Reclaimed) }),
		counter("tierlimit_lost_settlements_total", "Settlements that were given up, or whose hold Redis no longer knew.",
			func(s *tiered.Stats) float64 { return float64(s.Holds.Lost) }),
		gauge("tierlimit_held_units", "Units of concurrency limits that this process holds.",
			func(s *tiered.Stats) float64 { return float64(s.Slots.Units) }),
		counter("tierlimit_lost_slots_total", "Slots that were lost before they were released: they could not be renewed in time.",
			func(s *tiered.Stats) float64 { return float64(s.Slots.Lost) }),
		{
			Name:   "tierlimit_shadow_decisions_total",
			Help:   "Decisions of sampled keys, compared with those of the exact log, by rule and result (agreed, wrongly_allowed, wrongly_denied).",
			Labels: []string{"rule", "result"},
			Read: func(s *tiered.Stats, emit Emit) {
				for _, r := range s.Rules {
					if r.Shadow != nil {
						emit(float64(r.Shadow.Agreed), r.Name, "agreed")
						emit(float64(r.Shadow.WronglyAllowed), r.Name, "wrongly_allowed")
						emit(float64(r.Shadow.WronglyDenied), r.Name, "wrongly_denied")
					}
				}
			},
		},
		{
			Name:   "tierlimit_shadow_left_out_total",
			Help:   "Comparisons with the exact log that were not made, by rule and reason (queue_full, error).",
			Labels: []string{"rule", "reason"},
			Read: func(s *tiered.Stats, emit Emit) {
				for _, r := range s.Rules {
					if r.Shadow != nil {
						emit(float64(r.Shadow.LeftOutQueueFull), r.Name, "queue_full")
						emit(float64(r.Shadow.LeftOutError), r.Name, "error")
					}
				}
			},
		},
		{
			Name:   "tierlimit_rules_file_loads_total",
			Help:   "Loads of the rules file, by result (ok, failed).",
			Labels: []string{"result"},
			Read: ofSources(func(s []tiered.SourceStats, emit Emit) {
				var loads, failures uint64
				for _, source := range s {
					loads += source.Loads
					failures += source.Failures
				}
				emit(float64(loads), "ok")
				emit(float64(failures), "failed")
			}),
		},
		{
			Name: "tierlimit_rules_file_last_load_successful",
			Help: "1 if the rules file, as it was last read, is in force; 0 if it could not be loaded.",
			Kind: Gauge,
			Read: ofSources(func(s []tiered.SourceStats, emit Emit) {
				all := 1.0
				for _, source := range s {
					if !source.InForce {
						all = 0
					}
				}
				emit(all)
			}),
		},
		{
			Name: "tierlimit_rules_file_last_success_timestamp_seconds",
			Help: "When the rules in force were loaded, in seconds since 1970.",
			Kind: Gauge,
			Read: ofSources(func(s []tiered.SourceStats, emit Emit) {
				oldest := s[0].LastSuccess
				for _, source := range s {
					if source.LastSuccess.Before(oldest) {
						oldest = source.LastSuccess
					}
				}
				if oldest.IsZero() {
					emit(0)
					return
				}
				emit(float64(oldest.UnixNano()) / 1e9)
			}),
		},
	}
}

func decisions(s *tiered.Stats, emit Emit) {
	for _, r := range s.Rules {
		for _, t := range r.Decisions {
			emit(float64(t.Denied), r.Name, t.Tier.String(), "denied")
			emit(float64(t.Allowed), r.Name, t.Tier.String(), "allowed")
			emit(float64(t.HeldBack), r.Name, t.Tier.String(), "held_back")
		}
		for _, t := range r.DryRun { // never held back, because dry-run rules are asked after the others have granted
			emit(float64(t.Denied), r.Name, t.Tier.String(), "would_deny")
			emit(float64(t.Allowed), r.Name, t.Tier.String(), "would_allow")
		}
	}
}

// ofSources returns a Read that reports no values if no rules come from files. Several files are reported
// together.
func ofSources(read func(s []tiered.SourceStats, emit Emit)) func(*tiered.Stats, Emit) {
	return func(s *tiered.Stats, emit Emit) {
		if len(s.Sources) > 0 {
			read(s.Sources, emit)
		}
	}
}
