package promlimit_test

import (
	"context"
	"errors"
	"log/slog"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/promlimit"
	"github.com/tierlimit/tierlimit/tiered"
)

// newLimiter returns a limiter, and a registry with its metrics only.
func newLimiter(t *testing.T, options ...tiered.Option) (*tiered.Limiter, *prometheus.Registry) {
	t.Helper()
	options = append([]tiered.Option{
		tiered.Prefix(redistest.Prefix()), tiered.Logger(slog.New(slog.DiscardHandler)), tiered.Deadline(5 * time.Second),
	}, options...)
	client := redistest.Shared(t).Client(t)
	l := redistest.Reached(t, client, func() (*tiered.Limiter, error) { return tiered.New(client, options...) })
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(promlimit.NewCollector(l))
	return l, registry
}

func newRule(t *testing.T, l *tiered.Limiter, name string, lim limit.Limit, options ...tiered.RuleOption) *tiered.Rule {
	t.Helper()
	r, err := l.Rule(name, lim, options...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestMetricsTellWhatHappened(t *testing.T) {
	now := time.Now() // stands still, so that the denial stays remembered
	l, registry := newLimiter(t, tiered.VirtualClock(func() time.Time { return now }))
	r := newRule(t, l, "r", limit.PerMinute(2))
	dry := newRule(t, l, "dry", limit.PerMinute(1), tiered.DryRun(), tiered.DenialLife(0))
	for range 4 {
		if _, err := r.Allow(context.Background(), "k"); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		if _, err := dry.Allow(context.Background(), "k"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Allow(context.Background(), ""); !errors.Is(err, limit.ErrInvalidKey) {
		t.Fatal(err)
	}
	want := `
# HELP tierlimit_decisions_total Decisions by rule, deciding tier (redis, local, lease, fallback, overload) and outcome (allowed; denied; held_back: denied not by this rule, but by another one of the same request; for rules on a dry run would_allow, would_deny).
# TYPE tierlimit_decisions_total counter
tierlimit_decisions_total{outcome="allowed",rule="r",tier="fallback"} 0
tierlimit_decisions_total{outcome="allowed",rule="r",tier="lease"} 0
tierlimit_decisions_total{outcome="allowed",rule="r",tier="local"} 0
tierlimit_decisions_total{outcome="allowed",rule="r",tier="overload"} 0
tierlimit_decisions_total{outcome="allowed",rule="r",tier="redis"} 2
tierlimit_decisions_total{outcome="denied",rule="r",tier="fallback"} 0
tierlimit_decisions_total{outcome="denied",rule="r",tier="lease"} 0
tierlimit_decisions_total{outcome="denied",rule="r",tier="local"} 1
tierlimit_decisions_total{outcome="denied",rule="r",tier="overload"} 0
tierlimit_decisions_total{outcome="denied",rule="r",tier="redis"} 1
tierlimit_decisions_total{outcome="held_back",rule="r",tier="fallback"} 0
tierlimit_decisions_total{outcome="held_back",rule="r",tier="lease"} 0
tierlimit_decisions_total{outcome="held_back",rule="r",tier="local"} 0
tierlimit_decisions_total{outcome="held_back",rule="r",tier="overload"} 0
tierlimit_decisions_total{outcome="held_back",rule="r",tier="redis"} 0
tierlimit_decisions_total{outcome="would_allow",rule="dry",tier="fallback"} 0
tierlimit_decisions_total{outcome="would_allow",rule="dry",tier="lease"} 0
tierlimit_decisions_total{outcome="would_allow",rule="dry",tier="local"} 0
tierlimit_decisions_total{outcome="would_allow",rule="dry",tier="overload"} 0
tierlimit_decisions_total{outcome="would_allow",rule="dry",tier="redis"} 1
tierlimit_decisions_total{outcome="would_deny",rule="dry",tier="fallback"} 0
tierlimit_decisions_total{outcome="would_deny",rule="dry",tier="lease"} 0
tierlimit_decisions_total{outcome="would_deny",rule="dry",tier="local"} 0
tierlimit_decisions_total{outcome="would_deny",rule="dry",tier="overload"} 0
tierlimit_decisions_total{outcome="would_deny",rule="dry",tier="redis"} 2
# HELP tierlimit_decision_errors_total Calls that ended with an error instead of a decision, by rule and reason (invalid, cancelled, closed, other).
# TYPE tierlimit_decision_errors_total counter
tierlimit_decision_errors_total{reason="cancelled",rule="dry"} 0
tierlimit_decision_errors_total{reason="cancelled",rule="r"} 0
tierlimit_decision_errors_total{reason="closed",rule="dry"} 0
tierlimit_decision_errors_total{reason="closed",rule="r"} 0
tierlimit_decision_errors_total{reason="invalid",rule="dry"} 0
tierlimit_decision_errors_total{reason="invalid",rule="r"} 1
tierlimit_decision_errors_total{reason="other",rule="dry"} 0
tierlimit_decision_errors_total{reason="other",rule="r"} 0
# HELP tierlimit_missed_decisions_total Decisions that Redis should have made and did not, although it was not lost, by reason (no_room: more were waiting than it could have made in time; not_in_time: no answer before the deadline, or an error; own_time: no answer within the time that the program gave the call).
# TYPE tierlimit_missed_decisions_total counter
tierlimit_missed_decisions_total{reason="no_room"} 0
tierlimit_missed_decisions_total{reason="not_in_time"} 0
tierlimit_missed_decisions_total{reason="own_time"} 0
# HELP tierlimit_breaker_state Circuit breaker: 0 closed, 1 half-open, 2 open; on a Cluster, the highest value of all masters.
# TYPE tierlimit_breaker_state gauge
tierlimit_breaker_state 0
# HELP tierlimit_shards Masters of a Cluster by state (healthy, outage, settling); a single node counts as one.
# TYPE tierlimit_shards gauge
tierlimit_shards{state="healthy"} 1
tierlimit_shards{state="outage"} 0
tierlimit_shards{state="settling"} 0
# HELP tierlimit_fleet_size Instances that share the limits, as last heard from Redis.
# TYPE tierlimit_fleet_size gauge
tierlimit_fleet_size 1
# HELP tierlimit_remembered_denials Keys whose denial is remembered in process.
# TYPE tierlimit_remembered_denials gauge
tierlimit_remembered_denials 1
`
	names := []string{"tierlimit_decisions_total", "tierlimit_decision_errors_total", "tierlimit_missed_decisions_total", "tierlimit_breaker_state", "tierlimit_shards", "tierlimit_fleet_size", "tierlimit_remembered_denials"}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// The buckets of Prometheus's histograms are cumulative.
func TestTripsAreAHistogram(t *testing.T) {
	l, registry := newLimiter(t)
	r := newRule(t, l, "r", limit.PerMinute(1000))
	for range 20 {
		if _, err := r.Allow(context.Background(), "k"); err != nil {
			t.Fatal(err)
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	stats := l.Stats().Trips
	found := 0
	for _, f := range families {
		want := map[string]tiered.Histogram{"tierlimit_redis_trip_seconds": stats.Seconds, "tierlimit_redis_trip_calls": stats.Calls}[f.GetName()]
		if want.Bounds == nil {
			continue
		}
		found++
		got := f.GetMetric()[0].GetHistogram()
		if got.GetSampleCount() < 20 || got.GetSampleCount() > want.Count() || len(got.GetBucket()) != len(want.Bounds) {
			t.Errorf("%s has %d values in %d buckets, want up to %d in %d", f.GetName(), got.GetSampleCount(), len(got.GetBucket()), want.Count(), len(want.Bounds))
		}
		above := want.Counts[len(want.Bounds)] // values above the largest bound
		for i, b := range got.GetBucket() {
			if i > 0 && b.GetCumulativeCount() < got.GetBucket()[i-1].GetCumulativeCount() || i == len(want.Bounds)-1 && b.GetCumulativeCount()+above < got.GetSampleCount() {
				t.Errorf("%s: fewer values up to %v than below", f.GetName(), b.GetUpperBound())
			}
		}
		if last := got.GetBucket()[len(want.Bounds)-1]; last.GetCumulativeCount() > got.GetSampleCount() || last.GetUpperBound() != want.Bounds[len(want.Bounds)-1] {
			t.Errorf("%s: %v", f.GetName(), last)
		}
	}
	if found != 2 {
		t.Errorf("%d histograms, want 2", found)
	}
}

// The metrics of rules files exist once a file is loaded, and cover all files together.
func TestRulesFiles(t *testing.T) {
	l, registry := newLimiter(t)
	names := []string{"tierlimit_rules_file_loads_total", "tierlimit_rules_file_last_load_successful"}
	if n, err := testutil.GatherAndCount(registry, append(names, "tierlimit_rules_file_last_success_timestamp_seconds")...); n != 0 || err != nil {
		t.Errorf("%d series without a file, %v", n, err)
	}
	l.SourceLoaded("a.yaml", nil)
	l.SourceLoaded("b.yaml", nil)
	l.SourceLoaded("b.yaml", errors.New("it is gone"))
	l.SourceLoaded("a.yaml", nil)
	want := `
# HELP tierlimit_rules_file_last_load_successful 1 if the rules file, as it was last read, is in force; 0 if it could not be loaded.
# TYPE tierlimit_rules_file_last_load_successful gauge
tierlimit_rules_file_last_load_successful 0
# HELP tierlimit_rules_file_loads_total Loads of the rules file, by result (ok, failed).
# TYPE tierlimit_rules_file_loads_total counter
tierlimit_rules_file_loads_total{result="failed"} 1
tierlimit_rules_file_loads_total{result="ok"} 3
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "tierlimit_rules_file_last_success_timestamp_seconds" {
			at := time.Unix(int64(f.GetMetric()[0].GetGauge().GetValue()), 0)
			if time.Since(at).Abs() > time.Minute {
				t.Errorf("last success at %v", at)
			}
			return
		}
	}
	t.Error("it is not told when the rules were loaded")
}

// A registry accepts one limiter, or several with different labels. It accepts a later limiter after
// the first one is unregistered.
func TestOneRegistry(t *testing.T) {
	a, _ := newLimiter(t)
	b, _ := newLimiter(t)
	registry := prometheus.NewPedanticRegistry()
	first := promlimit.NewCollector(a)
	registry.MustRegister(first)
	if err := registry.Register(promlimit.NewCollector(b)); err == nil {
		t.Error("two limiters on one registry, and no error")
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := testutil.GatherAndCount(registry, "tierlimit_breaker_opened_total"); n != 1 || err != nil {
		t.Errorf("%d series of a closed limiter, %v", n, err)
	}
	if !registry.Unregister(first) {
		t.Error("it cannot be taken off the registry")
	}
	if err := registry.Register(promlimit.NewCollector(b)); err != nil {
		t.Error(err)
	}
	other := prometheus.WrapRegistererWith(prometheus.Labels{"limiter": "other"}, prometheus.NewRegistry())
	if err := other.Register(promlimit.NewCollector(a)); err != nil {
		t.Error(err)
	}
}

func TestNoLimiter(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(promlimit.NewCollector(nil))
	if _, err := registry.Gather(); err == nil || !strings.Contains(err.Error(), "nil limiter") {
		t.Errorf("%v", err)
	}
}

// A service does not link a client of a monitoring system, nor protobuf, just because it limits
// requests: only a program that imports this package does.
func TestLimitersLinkNoPrometheus(t *testing.T) {
	dependencies := func(packages ...string) string {
		out, err := exec.Command("go", append([]string{"list", "-deps"}, packages...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	limiting := dependencies("../tiered", "../httplimit", "../rulesfile", "../livepage", "../tiertest")
	for _, heavy := range []string{"prometheus", "protobuf", "opentelemetry"} {
		if strings.Contains(limiting, heavy) {
			t.Errorf("a package that limits requests imports %s", heavy)
		}
	}
	if !strings.Contains(dependencies("."), "github.com/prometheus/client_golang/prometheus\n") {
		t.Error("go list does not tell what is imported: this test shows nothing")
	}
}
