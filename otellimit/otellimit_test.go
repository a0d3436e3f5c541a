package otellimit_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/tierlimit/tierlimit/internal/metrics"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/otellimit"
	"github.com/tierlimit/tierlimit/tiered"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func newLimiter(t *testing.T) *tiered.Limiter {
	t.Helper()
	client := redistest.Shared(t).Client(t)
	l := redistest.Reached(t, client, func() (*tiered.Limiter, error) {
		return tiered.New(client, tiered.Prefix(redistest.Prefix()), tiered.Logger(slog.New(slog.DiscardHandler)), tiered.Deadline(5*time.Second))
	})
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// register returns a function that collects what the instruments of a limiter report.
func register(t *testing.T, l *tiered.Limiter, options ...otellimit.Option) (collect func() map[string]instrument) {
	t.Helper()
	reader := sdk.NewManualReader()
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	if _, err := otellimit.Register(l, append(options, otellimit.MeterProvider(provider))...); err != nil {
		t.Fatal(err)
	}
	return func() map[string]instrument { return collected(t, reader) }
}

// instrument is what was collected of one instrument. Its values are by attributes: "KEY=VALUE
// KEY=VALUE".
type instrument struct {
	kind, help string
	values     map[string]float64
}

func collected(t *testing.T, reader sdk.Reader) map[string]instrument {
	t.Helper()
	var got metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &got); err != nil {
		t.Fatal(err)
	}
	all := make(map[string]instrument)
	for _, scope := range got.ScopeMetrics {
		for _, m := range scope.Metrics {
			i := instrument{help: m.Description, values: make(map[string]float64)}
			var points []metricdata.DataPoint[float64]
			switch data := m.Data.(type) {
			case metricdata.Sum[float64]:
				i.kind, points = "counter", data.DataPoints
				if !data.IsMonotonic || data.Temporality != metricdata.CumulativeTemporality {
					t.Errorf("%s is no counter: %+v", m.Name, data)
				}
			case metricdata.Gauge[float64]:
				i.kind, points = "gauge", data.DataPoints
			default:
				t.Errorf("%s is a %T", m.Name, data)
			}
			for _, p := range points {
				i.values[p.Attributes.Encoded(attribute.DefaultEncoder())] = p.Value
			}
			all[m.Name] = i
		}
	}
	return all
}

// Names, kinds, help texts, attributes and values equal those of the Prometheus metrics.
func TestInstrumentsAreThoseOfPrometheus(t *testing.T) {
	l := newLimiter(t)
	collect := register(t, l)
	r, err := l.Rule("r", limit.PerHour(2), tiered.Use(limit.GCRA()), tiered.Shadow(1), tiered.DenialLife(0))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Rule("dry", limit.PerHour(2), tiered.DryRun()); err != nil {
		t.Fatal(err)
	}
	l.SourceLoaded("rules.yaml", nil)
	for range 5 {
		if _, err := r.Allow(context.Background(), "k"); err != nil {
			t.Fatal(err)
		}
	}
	// Background work is counted, too, so the loop repeats until none happened in between.
	var got map[string]instrument
	var s, again tiered.Stats
	for {
		s = l.Stats()
		got = collect()
		if again = l.Stats(); again.Trips.Seconds.Count() == s.Trips.Seconds.Count() && *again.Rules[1].Shadow == *s.Rules[1].Shadow {
			break
		}
	}
	instruments := 0
	for _, m := range metrics.All() {
		if m.Kind == metrics.Histogram {
			instruments += 3
			h := m.Histogram(&s)
			if sum, count := got[m.Name+"_sum"].values[""], got[m.Name+"_count"].values[""]; sum != h.Sum || count != float64(h.Count()) {
				t.Errorf("%s: sum %v of %v values, want %v of %v", m.Name, sum, count, h.Sum, h.Count())
			}
			bucket := got[m.Name+"_bucket"].values
			if n := bucket["le=+Inf"]; n != float64(h.Count()) || len(bucket) != len(h.Counts) {
				t.Errorf("%s: %v in %d buckets, want %v in %d", m.Name, n, len(bucket), h.Count(), len(h.Counts))
			}
			continue
		}
		instruments++
		want, most := values(m, &s), values(m, &again) // values that depend on time lie between the two
		kind := "counter"
		if m.Kind == metrics.Gauge {
			kind = "gauge"
		}
		if i := got[m.Name]; i.kind != kind || i.help != m.Help || !between(want, i.values, most) {
			t.Errorf("%s: %+v\nwant a %s with %v", m.Name, i, kind, want)
		}
	}
	if len(got) != instruments {
		t.Errorf("%d instruments, want %d", len(got), instruments)
	}
	decisions := got["tierlimit_decisions_total"].values
	if allowed, denied := decisions["outcome=allowed,rule=r,tier=redis"], decisions["outcome=denied,rule=r,tier=redis"]; allowed != 2 || denied != 3 {
		t.Errorf("%v allowed and %v denied, want 2 and 3", allowed, denied)
	}
	if _, ok := got["tierlimit_redis_trip_seconds_bucket"].values["le=0.025"]; !ok {
		t.Errorf("no bucket up to 25 ms, which an alert asks for: %v", got["tierlimit_redis_trip_seconds_bucket"].values)
	}
}

// Attributes distinguish limiters, in addition to the instruments' own attributes.
func TestAttributes(t *testing.T) {
	reader := sdk.NewManualReader()
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	for _, name := range []string{"a", "b"} {
		if _, err := otellimit.Register(newLimiter(t), otellimit.MeterProvider(provider), otellimit.Attributes(attribute.String("limiter", name))); err != nil {
			t.Fatal(err)
		}
	}
	got := collected(t, reader)
	want := map[string]float64{"limiter=a": 1, "limiter=b": 1}
	if fleet := got["tierlimit_fleet_size"].values; !maps.Equal(fleet, want) {
		t.Errorf("%v, want %v", fleet, want)
	}
	for _, series := range []string{"limiter=a,state=healthy", "limiter=b,state=healthy"} {
		if n := got["tierlimit_shards"].values[series]; n != 1 {
			t.Errorf("%v shards of %s", n, series)
		}
	}
	if n := len(got["tierlimit_redis_trip_calls_count"].values); n != 2 {
		t.Errorf("%d counts of trips, want one for each limiter", n)
	}
}

// After Unregister, nothing is observed. Without a provider, the global provider is used.
func TestUnregister(t *testing.T) {
	reader := sdk.NewManualReader()
	otel.SetMeterProvider(sdk.NewMeterProvider(sdk.WithReader(reader)))
	t.Cleanup(func() { otel.SetMeterProvider(noop.NewMeterProvider()) })
	registration, err := otellimit.Register(newLimiter(t))
	if err != nil {
		t.Fatal(err)
	}
	if n := collected(t, reader)["tierlimit_fleet_size"].values[""]; n != 1 {
		t.Errorf("fleet of %v", n)
	}
	if err := registration.Unregister(); err != nil {
		t.Fatal(err)
	}
	for name, i := range collected(t, reader) {
		if len(i.values) > 0 {
			t.Errorf("%s is still observed: %v", name, i.values)
		}
	}
}

func TestMistakes(t *testing.T) {
	if _, err := otellimit.Register(nil); !errors.Is(err, limit.ErrInvalidOption) {
		t.Errorf("no limiter: %v", err)
	}
	if _, err := otellimit.Register(newLimiter(t), otellimit.MeterProvider(nil)); !errors.Is(err, limit.ErrInvalidOption) {
		t.Errorf("no provider: %v", err)
	}
}

// A provider that cannot make an instrument makes Register fail. Otherwise a metric would be missing unnoticed.
func TestProvidersThatFail(t *testing.T) {
	l := newLimiter(t)
	for name, says := range map[string]string{
		"tierlimit_decisions_total":           "tierlimit_decisions_total",
		"tierlimit_fleet_size":                "tierlimit_fleet_size",
		"tierlimit_redis_trip_seconds_bucket": "tierlimit_redis_trip_seconds",
	} {
		if _, err := otellimit.Register(l, otellimit.MeterProvider(provider{meter: failing{name: name}})); !errors.Is(err, errFails) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

var errFails = errors.New("this instrument cannot be made")

// provider is the provider of one meter.
type provider struct {
	noop.MeterProvider
	meter metric.Meter
}

func (p provider) Meter(string, ...metric.MeterOption) metric.Meter { return p.meter }

// failing is a meter that cannot make the instrument of a name.
type failing struct {
	noop.Meter
	name string
}

func (f failing) Float64ObservableCounter(name string, _ ...metric.Float64ObservableCounterOption) (metric.Float64ObservableCounter, error) {
	return noop.Float64ObservableCounter{}, f.unless(name)
}

func (f failing) Float64ObservableGauge(name string, _ ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	return noop.Float64ObservableGauge{}, f.unless(name)
}

func (f failing) unless(name string) error {
	if name == f.name {
		return errFails
	}
	return nil
}

// values returns a metric's values by its labels.
func values(m metrics.Metric, s *tiered.Stats) map[string]float64 {
	values := make(map[string]float64)
	m.Read(s, func(value float64, labels ...string) {
		pairs := make([]string, len(labels))
		for i, label := range labels {
			pairs[i] = m.Labels[i] + "=" + label
		}
		slices.Sort(pairs)
		values[strings.Join(pairs, ",")] = value
	})
	return values
}

// between reports whether values have the labels of least, and none is outside the range from least to
// most.
func between(least, values, most map[string]float64) bool {
	if len(values) != len(least) {
		return false
	}
	for labels, value := range values {
		from, ok := least[labels]
		if !ok || value < from || value > most[labels] {
			return false
		}
	}
	return true
}
