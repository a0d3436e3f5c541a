package tiered

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/remote"
)

// metrics are the limiter's Prometheus metrics. Labels are few and bounded: rule
// names are chosen by the program, and nothing is labelled by key.
type metrics struct {
	decisions *prometheus.CounterVec
	failed    *prometheus.CounterVec
	trips     prometheus.Histogram
	batches   prometheus.Histogram
	errors    map[remote.Kind]prometheus.Counter

	shadow, shadowLeftOut *prometheus.CounterVec

	registry   prometheus.Registerer // nil: none
	registered []prometheus.Collector
}

func newMetrics(l *Limiter, registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tierlimit_decisions_total",
			Help: "Decisions by rule, deciding tier (redis, local, fallback) and outcome (allowed, denied; of rules on a dry run would_allow, would_deny).",
		}, []string{"rule", "tier", "outcome"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tierlimit_decision_errors_total",
			Help: "Calls that ended with an error instead of a decision, by rule.",
		}, []string{"rule"}),
		trips: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "tierlimit_redis_trip_seconds",
			Help:    "Duration of trips to Redis.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 10},
		}),
		batches: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "tierlimit_redis_batch_entries",
			Help:    "Entries per trip to Redis.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 9),
		}),
		errors: make(map[remote.Kind]prometheus.Counter),
		shadow: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tierlimit_shadow_decisions_total",
			Help: "Decisions of sampled keys, compared with those of the exact log, by rule and result (agreed, wrongly_allowed, wrongly_denied).",
		}, []string{"rule", "result"}),
		shadowLeftOut: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tierlimit_shadow_left_out_total",
			Help: "Comparisons with the exact log that were not made, by rule and reason (queue_full, error).",
		}, []string{"rule", "reason"}),
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
	for _, c := range []prometheus.Collector{
		m.decisions, m.failed, m.trips, m.batches, redisErrors, m.shadow, m.shadowLeftOut,
		gauge("tierlimit_breaker_state", "Circuit breaker: 0 closed, 1 half-open, 2 open.",
			func() float64 { return float64(l.breaker.State()) }),
		gauge("tierlimit_fleet_size", "Instances that share the limits, as last heard from Redis.",
			func() float64 { return float64(l.fleet.Size()) }),
		gauge("tierlimit_remembered_denials", "Keys whose denial is remembered in process.",
			func() float64 { return float64(l.rememberedDenials()) }),
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
func (m *metrics) trip(entries int, took time.Duration, err error) {
	m.trips.Observe(took.Seconds())
	m.batches.Observe(float64(entries))
	if err != nil {
		m.errors[remote.KindOf(err)].Inc()
	}
}

// ruleMetrics are the counters of one rule, looked up once.
type ruleMetrics struct {
	decisions [limit.TierFallback + 1][2]prometheus.Counter
	failed    prometheus.Counter
}

func (m *metrics) rule(name string, dryRun bool) ruleMetrics {
	denied, allowed := "denied", "allowed"
	if dryRun {
		denied, allowed = "would_deny", "would_allow"
	}
	r := ruleMetrics{failed: m.failed.WithLabelValues(name)}
	for tier := range r.decisions {
		r.decisions[tier][0] = m.decisions.WithLabelValues(name, limit.Tier(tier).String(), denied)
		r.decisions[tier][1] = m.decisions.WithLabelValues(name, limit.Tier(tier).String(), allowed)
	}
	return r
}

func (r *ruleMetrics) count(d limit.Decision) {
	outcome := 0
	if d.Allowed {
		outcome = 1
	}
	r.decisions[d.Tier][outcome].Inc()
}
