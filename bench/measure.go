package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/pprof"
	"time"

	"github.com/redis/go-redis/v9"
)

// metric is a figure that is measured for each cell.
type metric int

const (
	perSecond metric = iota
	deniedShare
	p50
	p99
	p999
	redisCPU
	clientCPU
	redisCalls
	redisCommands
	allocations
	allocatedBytes
	metrics
)

// metricNames are the names of the metrics in JSON. CPU and all that follow are per decision.
var metricNames = [metrics]string{
	"decisions_per_second",
	"denied_share",
	"p50_us",
	"p99_us",
	"p99.9_us",
	"redis_cpu_us",
	"client_cpu_us",
	"redis_calls",
	"redis_commands",
	"allocations",
	"allocated_bytes",
}

// measurement is one measurement of one cell.
type measurement struct {
	values [metrics]float64
	load   *load
	opened int // times that a breaker opened
}

// measure drives the subject after a warm-up, and measures what its decisions take.
func measure(ctx context.Context, control *redis.Client, s *subject, w *workload, drive driver, z size, span, warmUp time.Duration) (measurement, error) {
	pprof.SetGoroutineLabels(pprof.WithLabels(ctx, pprof.Labels("cell", label(w.name, z, s.name))))
	defer pprof.SetGoroutineLabels(context.Background())

	m := newMeter(control)
	var (
		opened int
		l      *load
		err    error
	)
	if w.primed {
		l, err = drivePrimed(ctx, s, w, z.callers, span, m)
	} else {
		if _, err := drive(ctx, s, w, z.callers, warmUp, nil); err != nil {
			return measurement{}, err
		}
		runtime.GC() // so that no subject pays for its predecessor's garbage
		opened = -s.timesOpened()
		l, err = drive(ctx, s, w, z.callers, span, func() error { return m.start(ctx) })
		if err == nil {
			err = m.stop(ctx)
		}
		opened += s.timesOpened()
	}
	if err != nil {
		return measurement{}, err
	}
	return m.measurement(s, l, opened), ctx.Err()
}

// measurement returns the figures of a load, from the sums of the meter.
func (m *meter) measurement(s *subject, l *load, opened int) measurement {
	decisions := float64(l.decided()) * float64(s.perCall)
	var calls, commands float64
	for _, n := range m.commands {
		commands += n
	}
	for _, name := range s.sends {
		calls += m.commands[name]
	}
	return measurement{load: l, opened: opened, values: [metrics]float64{
		perSecond:      decisions / l.took.Seconds(),
		deniedShare:    float64(l.calls[denied]) / float64(l.decided()),
		p50:            l.latency.percentile(50) / 1e3,
		p99:            l.latency.percentile(99) / 1e3,
		p999:           l.latency.percentile(99.9) / 1e3,
		redisCPU:       m.redisCPU * 1e6 / decisions,
		clientCPU:      float64(m.cpu) / 1e3 / decisions,
		redisCalls:     calls / decisions,
		redisCommands:  commands / decisions,
		allocations:    float64(m.mallocs) / decisions,
		allocatedBytes: float64(m.bytes) / decisions,
	}}
}

func (s *subject) timesOpened() int {
	if s.opened == nil {
		return 0
	}
	return s.opened()
}

// label names a cell, in profiles and for -only.
func label(workload string, z size, subject string) string {
	return fmt.Sprintf("%s/%v/%s", workload, z, subject)
}
