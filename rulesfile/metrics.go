package rulesfile

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those that [Metrics] lists.
type metrics struct {
	loads      *prometheus.CounterVec
	successful prometheus.Gauge
	at         prometheus.Gauge
}

func newMetrics() *metrics {
	m := &metrics{
		loads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tierlimit_rules_file_loads_total",
			Help: "Loads of the rules file, by result (ok, failed).",
		}, []string{"result"}),
		successful: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "tierlimit_rules_file_last_load_successful",
			Help: "1 if the rules file as last read is in force, 0 if it could not be loaded.",
		}),
		at: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "tierlimit_rules_file_last_success_timestamp_seconds",
			Help: "When the rules in force were loaded, in seconds since 1970.",
		}),
	}
	for _, result := range []string{"ok", "failed"} {
		m.loads.WithLabelValues(result)
	}
	return m
}

// register puts all on a registry, or none.
func (m *metrics) register(registry prometheus.Registerer) error {
	all := []prometheus.Collector{m.loads, m.successful, m.at}
	for i, c := range all {
		if err := registry.Register(c); err != nil {
			for _, done := range all[:i] {
				registry.Unregister(done)
			}
			return fmt.Errorf("registering metrics (does another rules file use this registry? see rulesfile.Metrics): %w", err)
		}
	}
	return nil
}

func (m *metrics) count(err error) {
	if err != nil {
		m.loads.WithLabelValues("failed").Inc()
		m.successful.Set(0)
		return
	}
	m.loads.WithLabelValues("ok").Inc()
	m.successful.Set(1)
	m.at.SetToCurrentTime()
}
