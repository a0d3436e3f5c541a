// Package otellimit shows OpenTelemetry what a limiter counts, see [tiered.Stats]:
//
//	limiter, err := tiered.New(client)
//	registration, err := otellimit.Register(limiter)
//
// The instruments have the names and labels of package promlimit's metrics, which
// docs/operating.md describes. They are observable ones: the limiter's counters are read when
// the SDK collects, and decisions cost nothing more. OpenTelemetry has no observable histogram, so
// that each of the two histograms is three counters, as Prometheus stores it: NAME_bucket, whose
// attribute le is the upper bound of a bucket that holds those below as well, NAME_sum, and
// NAME_count.
//
// This package is a module of its own, so that nobody else requires OpenTelemetry.
package otellimit

import (
	"context"
	"fmt"
	"strconv"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/tierlimit/tierlimit/internal/metrics"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// scope names the instruments' scope.
const scope = "github.com/tierlimit/tierlimit/otellimit"

// Option sets something for [Register]. What it was given is checked there, with an error that
// wraps [limit.ErrInvalidOption].
type Option func(*config) error

type config struct {
	provider   metric.MeterProvider
	attributes []attribute.KeyValue
}

// MeterProvider sets where the instruments are made; the default is the global provider,
// otel.GetMeterProvider().
func MeterProvider(provider metric.MeterProvider) Option {
	return func(c *config) error {
		if provider == nil {
			return fmt.Errorf("%w: the meter provider is nil", limit.ErrInvalidOption)
		}
		c.provider = provider
		return nil
	}
}

// Attributes sets attributes that all observations have besides their own: to tell several
// limiters of a process apart, which must differ in them.
func Attributes(attributes ...attribute.KeyValue) Option {
	return func(c *config) error {
		c.attributes = append(c.attributes, attributes...)
		return nil
	}
}

// Register makes the instruments, and has them observed each time that the provider's reader
// collects, until Unregister of the registration is called. Unregister before another limiter with
// the same attributes takes this one's place; when the limiter is closed, the instruments go on to
// show what was.
//
// Errors wrap [limit.ErrInvalidOption], or are the provider's.
func Register(limiter *tiered.Limiter, options ...Option) (metric.Registration, error) {
	if limiter == nil {
		return nil, fmt.Errorf("%w: the limiter is nil", limit.ErrInvalidOption)
	}
	var c config
	for _, option := range options {
		if err := option(&c); err != nil {
			return nil, err
		}
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

// reader is the instruments of a limiter, and what observes them.
type reader struct {
	meter       metric.Meter
	attributes  []attribute.KeyValue // of all observations
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
