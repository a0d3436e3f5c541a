package tiered

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/remote"
)

// metrics are the limiter's Prometheus metrics. Labels are few and bounded: rule
// names are chosen by the program, and nothing is labelled by key.
type metrics struct {
	decisions *decisionsMetric
	failed    *prometheus.CounterVec
	noRoom    prometheus.Counter // decisions
	notInTime prometheus.Counter // decisions
	trips     *histogram
	tripCalls *histogram
	errors    map[remote.Kind]prometheus.Counter
	charged   prometheus.Counter
	amnesia   prometheus.Counter
	opened    prometheus.Counter

	shadow, shadowLeftOut *prometheus.CounterVec

	registry   prometheus.Registerer // nil: none
	registered []prometheus.Collector
}

func newMetrics(l *Limiter, registry prometheus.Registerer) (*metrics, error) {
	missed := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tierlimit_missed_decisions_total",
		Help: "Decisions that Redis was to make and did not, while it was not lost, by reason (no_room: more waited than it could have decided in time; not_in_time: no answer before the deadline, or an error).",
	}, []string{"reason"})
	m := &metrics{
		decisions: newDecisionsMetric(),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tierlimit_decision_errors_total",
			Help: "Calls that ended with an error instead of a decision, by rule and reason (invalid, cancelled, closed, other).",
		}, []string{"rule", "reason"}),
		trips: newHistogram("tierlimit_redis_trip_seconds", "Duration of trips to Redis.",
			[]float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 10}),
		// A trip has few entries, but calls of one key share an entry: as many calls may
		// ride as wait.
		tripCalls: newHistogram("tierlimit_redis_trip_calls", "Calls answered by one trip to Redis.",
			prometheus.ExponentialBuckets(1, 4, 8)),
		noRoom:    missed.WithLabelValues("no_room"),
		notInTime: missed.WithLabelValues("not_in_time"),
		errors:    make(map[remote.Kind]prometheus.Counter),
		opened: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tierlimit_breaker_opened_total",
			Help: "How often the circuit breaker opened, also for less than the time between two scrapes.",
		}),
		shadow: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tierlimit_shadow_decisions_total",
			Help: "Decisions of sampled keys, compared with those of the exact log, by rule and result (agreed, wrongly_allowed, wrongly_denied).",
		}, []string{"rule", "result"}),
		shadowLeftOut: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tierlimit_shadow_left_out_total",
			Help: "Comparisons with the exact log that were not made, by rule and reason (queue_full, error).",
		}, []string{"rule", "reason"}),
		charged: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tierlimit_charged_back_units_total",
			Help: "Units granted without Redis, or forgotten by it, that were charged there afterwards.",
		}),
		amnesia: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tierlimit_amnesia_total",
			Help: "How often Redis was found to have lost its memory, or a part of it.",
		}),
		registry: registry,
	}
	redisErrors := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tierlimit_redis_errors_total",
		Help: "Failed trips to Redis, by kind of failure.",
	}, []string{"kind"})
	for _, kind := range remote.Kinds() {
		m.errors[kind] = redisErrors.WithLabelValues(string(kind))
	}
	if registry == nil {
		return m, nil
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	shards := func(state State) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "tierlimit_shards",
			Help:        "Masters of a Cluster by state (healthy, outage, settling); one node is one.",
			ConstLabels: prometheus.Labels{"state": state.String()},
		}, func() float64 { return float64(l.shardsIn(state)) })
	}
	for _, c := range []prometheus.Collector{
		m.decisions, m.failed, m.trips, m.tripCalls, missed, redisErrors, m.opened, m.charged, m.amnesia, m.shadow, m.shadowLeftOut,
		shards(Healthy), shards(Outage), shards(Settling),
		gauge("tierlimit_breaker_state", "Circuit breaker: 0 closed, 1 half-open, 2 open; of a Cluster's masters, the highest.",
			func() float64 { return float64(l.breakerState()) }),
		gauge("tierlimit_state", "Who decides: 0 Redis, 1 the outage policies, 2 both Redis and this instance's share; of a Cluster's masters, the worst: 1, then 2.",
			func() float64 { return float64(l.State()) }),
		gauge("tierlimit_uncharged_units", "Units granted without Redis that wait to be charged there.",
			func() float64 { units, _ := l.ledger.Waiting(); return float64(units) }),
		gauge("tierlimit_fleet_size", "Instances that share the limits, as last heard from Redis.",
			func() float64 { return float64(l.FleetSize()) }),
		gauge("tierlimit_remembered_denials", "Keys whose denial is remembered in process.",
			func() float64 { return float64(l.rememberedDenials()) }),
		gauge("tierlimit_leased_units", "Units that are charged in Redis and held to be spent in process.",
			func() float64 { return float64(l.leasedUnits()) }),
		gauge("tierlimit_held_units", "Units of limits on what is held at the same time that this process holds.",
			func() float64 { return float64(l.slots.table.Units()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "tierlimit_lost_slots_total",
			Help: "Slots that were lost before they were released: Redis could not be told in time that this process is alive.",
		}, func() float64 { return float64(l.slots.table.Lost()) }),
	} {
		if err := registry.Register(c); err != nil {
			m.unregister()
			return nil, fmt.Errorf("registering metrics (does another limiter use this registry? see tiered.Metrics): %w", err)
		}
		m.registered = append(m.registered, c)
	}
	return m, nil
}

// unregister makes room for the metrics of a later limiter.
func (m *metrics) unregister() {
	for _, c := range m.registered {
		m.registry.Unregister(c)
	}
}

// trip records a trip to Redis.
func (m *metrics) trip(calls int, took time.Duration, err error) {
	m.trips.observe(took.Seconds())
	m.tripCalls.observe(float64(calls))
	if err != nil {
		m.errors[remote.KindOf(err)].Inc()
	}
}

// reason is why a call ended with an error, sorted by whose business it is: the
// caller's code, the limiter's settings, the caller's caller.
type reason int

const (
	reasonInvalid   reason = iota // the call was a mistake
	reasonCancelled               // the context ended
	reasonClosed                  // the limiter was closed
	reasonOther
)

func (r reason) String() string {
	return [...]string{"invalid", "cancelled", "closed", "other"}[r]
}

func reasonOf(err error) reason {
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case is(context.Canceled), is(context.DeadlineExceeded):
		return reasonCancelled
	case is(limit.ErrInvalidKey), is(limit.ErrInvalidCost), is(limit.ErrCostExceedsLimit), is(limit.ErrInvalidRule):
		return reasonInvalid
	case is(limit.ErrClosed):
		return reasonClosed
	}
	return reasonOther
}

// ruleMetrics are the counters of one rule, looked up once.
type ruleMetrics struct {
	decisions *decisionCounts
	failed    [reasonOther + 1]prometheus.Counter
}

func (m *metrics) rule(name string, dryRun bool) ruleMetrics {
	r := ruleMetrics{decisions: m.decisions.rule(name, dryRun)}
	for why := range r.failed {
		r.failed[why] = m.failed.WithLabelValues(name, reason(why).String())
	}
	return r
}

func (r *ruleMetrics) fail(err error) { r.failed[reasonOf(err)].Inc() }
