// Package metrics defines the names, help texts and labels under which what [tiered.Limiter.Stats]
// returns is exported. promlimit and otellimit share it, so that both have the same metrics.
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

// Metric is a metric of a limiter. Labels are few and bounded: the program chooses the names of
// rules, and nothing is labelled by key.
type Metric struct {
	Name, Help string
	Kind       Kind
	Labels     []string

	// Read passes each value to tell, with a value for each label. It is nil for a histogram.
	Read func(s *tiered.Stats, tell Tell)
	// Histogram returns a histogram, which has no labels. It is nil for other kinds.
	Histogram func(s *tiered.Stats) *tiered.Histogram
}

// Tell takes a value and those of its labels.
type Tell func(value float64, labels ...string)

// All returns all metrics, in the order of their description in docs/operating.md.
func All() []Metric {
	return []Metric{
		{
			Name:   "tierlimit_decisions_total",
			Help:   "Decisions by rule, deciding tier (redis, local, lease, fallback, overload) and outcome (allowed, denied, held_back: not denied by this rule, but by another of the same request; of rules on a dry run would_allow, would_deny).",
			Labels: []string{"rule", "tier", "outcome"},
			Read:   decisions,
		},
		{
			Name:   "tierlimit_decision_errors_total",
			Help:   "Calls that ended with an error instead of a decision, by rule and reason (invalid, cancelled, closed, other).",
			Labels: []string{"rule", "reason"},
			Read: func(s *tiered.Stats, tell Tell) {
				for _, r := range s.Rules {
					tell(float64(r.Errors.Invalid), r.Name, "invalid")
					tell(float64(r.Errors.Cancelled), r.Name, "cancelled")
					tell(float64(r.Errors.Closed), r.Name, "closed")
					tell(float64(r.Errors.Other), r.Name, "other")
				}
			},
		},
		{
			Name:   "tierlimit_missed_decisions_total",
			Help:   "Decisions that Redis was to make and did not, while it was not lost, by reason (no_room: more waited than it could have decided in time; not_in_time: no answer before the deadline, or an error).",
			Labels: []string{"reason"},
			Read: func(s *tiered.Stats, tell Tell) {
				tell(float64(s.Missed.NoRoom), "no_room")
				tell(float64(s.Missed.NotInTime), "not_in_time")
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
			Help:   "Failed trips to Redis, by kind of failure.",
			Labels: []string{"kind"},
			Read: func(s *tiered.Stats, tell Tell) {
				for kind, n := range s.Trips.Errors {
					tell(float64(n), kind)
				}
			},
		},
		{
			Name: "tierlimit_breaker_state",
			Help: "Circuit breaker: 0 closed, 1 half-open, 2 open; of a Cluster's masters, the highest.",
			Kind: Gauge,
			Read: func(s *tiered.Stats, tell Tell) {
				highest := tiered.BreakerClosed
				for _, shard := range s.Shards {
					highest = max(highest, shard.Breaker)
				}
				tell(float64(highest))
			},
		},
		{
			Name: "tierlimit_breaker_opened_total",
			Help: "How often the circuit breaker opened, also for less than the time between two scrapes.",
			Read: func(s *tiered.Stats, tell Tell) { tell(float64(s.Outages)) },
		},
		{
			Name: "tierlimit_state",
			Help: "Who decides: 0 Redis, 1 the outage policies, 2 both Redis and this instance's share; of a Cluster's masters, the worst: 1, then 2.",
			Kind: Gauge,
			Read: func(s *tiered.Stats, tell Tell) { tell(float64(s.State)) },
		},
		{
			Name:   "tierlimit_shards",
			Help:   "Masters of a Cluster by state (healthy, outage, settling); one node is one.",
			Kind:   Gauge,
			Labels: []string{"state"},
			Read: func(s *tiered.Stats, tell Tell) {
				for _, state := range []tiered.State{tiered.Healthy, tiered.Outage, tiered.Settling} {
					shards := 0
					for _, shard := range s.Shards {
						if shard.State == state {
							shards++
						}
					}
					tell(float64(shards), state.String())
				}
			},
		},
		{
			Name: "tierlimit_uncharged_units",
			Help: "Units granted without Redis that wait to be charged there.",
			Kind: Gauge,
			Read: func(s *tiered.Stats, tell Tell) { tell(float64(s.UnchargedUnits)) },
		},
		{
			Name: "tierlimit_charged_back_units_total",
			Help: "Units granted without Redis, or forgotten by it, that were charged there afterwards.",
			Read: func(s *tiered.Stats, tell Tell) { tell(float64(s.ChargedBackUnits)) },
		},
		{
			Name: "tierlimit_amnesia_total",
			Help: "How often Redis was found to have lost its memory, or a part of it.",
			Read: func(s *tiered.Stats, tell Tell) { tell(float64(s.MemoryLosses)) },
		},
		{
			Name: "tierlimit_fleet_size",
			Help: "Instances that share the limits, as last heard from Redis.",
			Kind: Gauge,
			Read: func(s *tiered.Stats, tell Tell) { tell(float64(s.FleetSize)) },
		},
		{
			Name: "tierlimit_remembered_denials",
			Help: "Keys whose denial is remembered in process.",
			Kind: Gauge,
			Read: func(s *tiered.Stats, tell Tell) { tell(float64(s.RememberedDenials)) },
		},
		{
			Name: "tierlimit_leased_units",
			Help: "Units that are charged in Redis and held to be spent in process.",
			Kind: Gauge,
			Read: func(s *tiered.Stats, tell Tell) { tell(float64(s.LeasedUnits)) },
		},
		{
			Name: "tierlimit_open_holds",
			Help: "Holds of this process that are neither settled nor cancelled.",
			Kind: Gauge,
			Read: func(s *tiered.Stats, tell Tell) { tell(float64(s.Holds.Open)) },
		},
		{
			Name: "tierlimit_open_hold_units",
			Help: "Units of those holds.",
			Kind: Gauge,
			Read: func(s *tiered.Stats, tell Tell) { tell(float64(s.Holds.Units)) },
		},
		{
			Name: "tierlimit_waiting_settlements",
			Help: "Settlements of holds that wait for Redis.",
			Kind: Gauge,
			Read: func(s *tiered.Stats, tell Tell) { tell(float64(s.Holds.Unsettled)) },
		},
		{
			Name: "tierlimit_settlements_total",
			Help: "Holds that were settled or cancelled.",
			Read: func(s *tiered.Stats, tell Tell) { tell(float64(s.Holds.Settled)) },
		},
		{
			Name: "tierlimit_late_settlements_total",
			Help: "Those of them that came after the end of the hold.",
			Read: func(s *tiered.Stats, tell Tell) { tell(float64(s.Holds.Late)) },
		},
		{
			Name: "tierlimit_reclaimed_holds_total",
			Help: "Those of them whose units had been given back by then.",
			Read: func(s *tiered.Stats, tell Tell) { tell(float64(s.Holds.Reclaimed)) },
		},
		{
			Name: "tierlimit_lost_settlements_total",
			Help: "Settlements of holds that Redis did not know any more, or that were given up.",
			Read: func(s *tiered.Stats, tell Tell) { tell(float64(s.Holds.Lost)) },
		},
		{
			Name: "tierlimit_held_units",
			Help: "Units of limits on what is in flight that this process holds.",
			Kind: Gauge,
			Read: func(s *tiered.Stats, tell Tell) { tell(float64(s.Slots.Units)) },
		},
		{
			Name: "tierlimit_lost_slots_total",
			Help: "Slots that were lost before they were released: Redis could not be told in time that this process is alive.",
			Read: func(s *tiered.Stats, tell Tell) { tell(float64(s.Slots.Lost)) },
		},
		{
			Name:   "tierlimit_shadow_decisions_total",
			Help:   "Decisions of sampled keys, compared with those of the exact log, by rule and result (agreed, wrongly_allowed, wrongly_denied).",
			Labels: []string{"rule", "result"},
			Read: func(s *tiered.Stats, tell Tell) {
				for _, r := range s.Rules {
					if r.Shadow != nil {
						tell(float64(r.Shadow.Agreed), r.Name, "agreed")
						tell(float64(r.Shadow.WronglyAllowed), r.Name, "wrongly_allowed")
						tell(float64(r.Shadow.WronglyDenied), r.Name, "wrongly_denied")
					}
				}
			},
		},
		{
			Name:   "tierlimit_shadow_left_out_total",
			Help:   "Comparisons with the exact log that were not made, by rule and reason (queue_full, error).",
			Labels: []string{"rule", "reason"},
			Read: func(s *tiered.Stats, tell Tell) {
				for _, r := range s.Rules {
					if r.Shadow != nil {
						tell(float64(r.Shadow.LeftOutQueueFull), r.Name, "queue_full")
						tell(float64(r.Shadow.LeftOutError), r.Name, "error")
					}
				}
			},
		},
		{
			Name:   "tierlimit_rules_file_loads_total",
			Help:   "Loads of the rules file, by result (ok, failed).",
			Labels: []string{"result"},
			Read: ofSources(func(s []tiered.SourceStats, tell Tell) {
				var loads, failures uint64
				for _, source := range s {
					loads += source.Loads
					failures += source.Failures
				}
				tell(float64(loads), "ok")
				tell(float64(failures), "failed")
			}),
		},
		{
			Name: "tierlimit_rules_file_last_load_successful",
			Help: "1 if the rules file as last read is in force, 0 if it could not be loaded.",
			Kind: Gauge,
			Read: ofSources(func(s []tiered.SourceStats, tell Tell) {
				all := 1.0
				for _, source := range s {
					if !source.InForce {
						all = 0
					}
				}
				tell(all)
			}),
		},
		{
			Name: "tierlimit_rules_file_last_success_timestamp_seconds",
			Help: "When the rules in force were loaded, in seconds since 1970.",
			Kind: Gauge,
			Read: ofSources(func(s []tiered.SourceStats, tell Tell) {
				oldest := s[0].LastSuccess
				for _, source := range s {
					if source.LastSuccess.Before(oldest) {
						oldest = source.LastSuccess
					}
				}
				if oldest.IsZero() {
					tell(0)
					return
				}
				tell(float64(oldest.UnixNano()) / 1e9)
			}),
		},
	}
}

func decisions(s *tiered.Stats, tell Tell) {
	for _, r := range s.Rules {
		for _, t := range r.Decisions {
			tell(float64(t.Denied), r.Name, t.Tier.String(), "denied")
			tell(float64(t.Allowed), r.Name, t.Tier.String(), "allowed")
			tell(float64(t.HeldBack), r.Name, t.Tier.String(), "held_back")
		}
		for _, t := range r.DryRun { // is never held back: it is asked after the others have granted
			tell(float64(t.Denied), r.Name, t.Tier.String(), "would_deny")
			tell(float64(t.Allowed), r.Name, t.Tier.String(), "would_allow")
		}
	}
}

// ofSources returns a Read that has no values if no rules come from files. Several files are
// reported together.
func ofSources(read func(s []tiered.SourceStats, tell Tell)) func(*tiered.Stats, Tell) {
	return func(s *tiered.Stats, tell Tell) {
		if len(s.Sources) > 0 {
			read(s.Sources, tell)
		}
	}
}
