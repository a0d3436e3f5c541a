// Package promlimit exports a limiter's counters and state, see [tiered.Stats], to Prometheus:
//
//	limiter, err := tiered.New(client)
//	prometheus.MustRegister(promlimit.NewCollector(limiter))
//
// docs/operating.md describes each metric, and docs/monitoring has a dashboard and alert rules.
// Programs that do not import this package do not link Prometheus's client.
package promlimit

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tierlimit/tierlimit/internal/metrics"
	"github.com/tierlimit/tierlimit/tiered"
)

// errNoLimiter is the error of gathering metrics from a collector without a limiter.
var errNoLimiter = errors.New("promlimit: NewCollector was given a nil limiter")

// collector exports the metrics of one limiter. It is safe for concurrent use.
type collector struct {
	limiter *tiered.Limiter
	metrics []metrics.Metric
	descs   []*prometheus.Desc // of the metrics
}

// NewCollector returns a collector that reads the limiter's counters and state whenever metrics are
// gathered, and costs nothing in between. If the limiter has rules from files, see package rulesfile,
// the collector includes the metrics of these files.
//
// A registry accepts the collector of one limiter, and refuses a second one. To register several
// limiters, give each a label with [prometheus.WrapRegistererWith]. A collector may stay registered
// when its limiter is closed, and then reports the last values. Unregister it before you register the
// collector of a later limiter. Gathering from the collector of a nil limiter is an error.
func NewCollector(limiter *tiered.Limiter) prometheus.Collector {
	c := &collector{limiter: limiter, metrics: metrics.All()}
	for _, m := range c.metrics {
		c.descs = append(c.descs, prometheus.NewDesc(m.Name, m.Help, m.Labels, nil))
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	if c.limiter == nil {
		out <- prometheus.NewInvalidMetric(c.descs[0], errNoLimiter)
		return
	}
	s := c.limiter.Stats()
	for i, m := range c.metrics {
		desc := c.descs[i]
		switch m.Kind {
		case metrics.Histogram:
			out <- histogram(desc, &s, m.Histogram(&s))
		case metrics.Gauge:
			m.Read(&s, func(value float64, labels ...string) {
				out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
			})
		default:
			m.Read(&s, func(value float64, labels ...string) {
				out <- prometheus.MustNewConstMetricWithCreatedTimestamp(desc, prometheus.CounterValue, value, s.Since, labels...)
			})
		}
	}
}

// histogram returns h as a metric of Prometheus, whose buckets are cumulative.
func histogram(desc *prometheus.Desc, s *tiered.Stats, h *tiered.Histogram) prometheus.Metric {
	buckets, total := make(map[float64]uint64, len(h.Bounds)), uint64(0)
	for i, bound := range h.Bounds {
		total += h.Counts[i]
		buckets[bound] = total
	}
	return prometheus.MustNewConstHistogramWithCreatedTimestamp(desc, h.Count(), h.Sum, buckets, s.Since)
}
