// Package otellimit exports a limiter's counters and state, see [tiered.Stats], to OpenTelemetry:
//
//	limiter, err := tiered.New(client)
//	registration, err := otellimit.Register(limiter)
//
// The instruments have the names of package promlimit's metrics, and the metrics' labels as attributes;
// docs/operating.md describes them. All instruments are observable: the limiter's counters are read
// when the SDK collects, and a decision costs nothing more. OpenTelemetry has no observable histogram.
// Therefore each histogram is three counters, as in Prometheus: NAME_bucket counts the values up to the
// bound in its attribute le, NAME_sum adds the values up, and NAME_count counts all values.
// OpenTelemetry's exporter to Prometheus appends _total to these names, as it does for all counters.
//
// A rule has 15 attribute sets of tierlimit_decisions_total, 10 if it is on a dry run, and 25 once it has been put on
// a dry run or taken off it. The SDK keeps 2,000 attribute sets per instrument, and combines all further ones into one.
// Programs with more than 130 rules, or 80 with dry runs that begin or end, therefore need
// metric.WithCardinalityLimit.
//
// The package is a module of its own, so that users of the library do not require OpenTelemetry.
package otellimit

import (
	"context"
	"fmt"
	"strconv"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/tierlimit/tierlimit/internal/metrics"
	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/tiered"
)

// scope is the name of the instruments' scope.
const scope = "github.com/tierlimit/tierlimit/otellimit"

// Option configures [Register], which checks the option's arguments. Errors wrap
// [github.com/tierlimit/tierlimit/limit.ErrInvalidOption].
type Option func(*config) error

type config struct {
	provider   metric.MeterProvider
	attributes []attribute.KeyValue
}

// MeterProvider sets the provider in which the instruments are made; the default is the global
// provider, otel.GetMeterProvider().
func MeterProvider(provider metric.MeterProvider) Option {
	return option.Set(func(c *config) { c.provider = provider }, provider != nil, "MeterProvider was given nil")
}

// Attributes adds attributes to all observations. If several limiters of a process are registered with
// the same provider, they must have different attributes. An attribute with the name of one of a metric's labels, such
// as "rule" or "tier", does not appear on that metric.
func Attributes(attributes ...attribute.KeyValue) Option {
	return option.Always(func(c *config) { c.attributes = append(c.attributes, attributes...) })
}

// Register creates the instruments and observes them whenever a reader of the provider collects, until
// the registration's Unregister is called. After the limiter is closed, the instruments report the last
// values. Unregister a closed limiter before you register another limiter with the same attributes.
//
// Errors wrap [github.com/tierlimit/tierlimit/limit.ErrInvalidOption], or come from the provider.
func Register(limiter *tiered.Limiter, options ...Option) (metric.Registration, error) {
	if limiter == nil {
		return nil, option.Invalid("the limiter is nil")
	}
	var c config
	if err := option.Apply(&c, options); err != nil {
		return nil, err
	}
	if c.provider == nil {
		c.provider = otel.GetMeterProvider()
	}
	r := reader{meter: c.provider.Meter(scope), attributes: c.attributes}
	for _, m := range metrics.All() {
		if err := r.add(m); err != nil {
			return nil, fmt.Errorf("otellimit: making instrument %s: %w", m.Name, err)
		}
	}
	return r.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := limiter.Stats()
		for _, observe := range r.observe {
			observe(&s, o)
		}
		return nil
	}, r.instruments...)
}

// reader has the instruments of a limiter, and the functions that observe them.
type reader struct {
	meter       metric.Meter
	attributes  []attribute.KeyValue // added to all observations
	instruments []metric.Observable
	observe     []func(*tiered.Stats, metric.Observer)
}

// add makes the instruments of a metric.
func (r *reader) add(m metrics.Metric) error {
	if m.Kind == metrics.Histogram {
		return r.addHistogram(m)
	}
	instrument, err := r.instrument(m.Name, m.Help, m.Kind)
	if err != nil {
		return err
	}
	r.observe = append(r.observe, func(s *tiered.Stats, o metric.Observer) {
		m.Read(s, func(value float64, labels ...string) {
			own := make([]attribute.KeyValue, len(labels))
			for i, label := range labels {
				own[i] = attribute.String(m.Labels[i], label)
			}
			o.ObserveFloat64(instrument, value, metric.WithAttributes(r.attributes...), metric.WithAttributes(own...))
		})
	})
	return nil
}

func (r *reader) addHistogram(m metrics.Metric) error {
	var series [3]metric.Float64Observable
	for i, suffix := range []string{"_bucket", "_sum", "_count"} {
		var err error
		if series[i], err = r.instrument(m.Name+suffix, m.Help, metrics.Counter); err != nil {
			return err
		}
	}
	bucket, sum, count := series[0], series[1], series[2]
	r.observe = append(r.observe, func(s *tiered.Stats, o metric.Observer) {
		h, total, all := m.Histogram(s), uint64(0), metric.WithAttributes(r.attributes...)
		for i, n := range h.Counts {
			le := "+Inf"
			if i < len(h.Bounds) {
				le = strconv.FormatFloat(h.Bounds[i], 'g', -1, 64)
			}
			total += n
			o.ObserveFloat64(bucket, float64(total), all, metric.WithAttributes(attribute.String("le", le)))
		}
		o.ObserveFloat64(sum, h.Sum, all)
		o.ObserveFloat64(count, float64(total), all)
	})
	return nil
}

// instrument makes an instrument.
func (r *reader) instrument(name, help string, kind metrics.Kind) (o metric.Float64Observable, err error) {
	if kind == metrics.Gauge {
		o, err = r.meter.Float64ObservableGauge(name, metric.WithDescription(help))
	} else {
		o, err = r.meter.Float64ObservableCounter(name, metric.WithDescription(help))
	}
	r.instruments = append(r.instruments, o)
	return o, err
}
