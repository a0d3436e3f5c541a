package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/pprof"
	"time"

	"github.com/redis/go-redis/v9"
)

// metric is something that is measured of each cell.
type metric int

const (
	perSecond metric = iota
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

// names of the metrics in JSON. All but the percentiles are per decision.
var metricNames = [metrics]string{
	"decisions_per_second",
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

// measurement is one look at one cell.
type measurement struct {
	values [metrics]float64
	load   *load
}

// measure drives the subject after a short warm-up and counts what it took.
func measure(ctx context.Context, control *redis.Client, s *subject, w *workload, callers int, span time.Duration) (measurement, error) {
	label := fmt.Sprintf("%s/%d/%s", w.name, callers, s.name)
	pprof.SetGoroutineLabels(pprof.WithLabels(ctx, pprof.Labels("cell", label)))
	defer pprof.SetGoroutineLabels(context.Background())

	// Long enough for the pool to fill with connections.
	drive(ctx, s, w, callers, max(span/5, 50*time.Millisecond))
	runtime.GC() // so that no subject pays for what the one before it left

	redisBefore, err := readServerUsage(ctx, control)
	if err != nil {
		return measurement{}, err
	}
	var heapBefore, heapAfter runtime.MemStats
	runtime.ReadMemStats(&heapBefore)
	cpuBefore := processCPU()
	l := drive(ctx, s, w, callers, span)
	cpu := processCPU() - cpuBefore
	runtime.ReadMemStats(&heapAfter)
	redisAfter, err := readServerUsage(ctx, control)
	if err != nil {
		return measurement{}, err
	}

	decisions := float64(l.total()) * float64(s.perCall)
	return measurement{load: l, values: [metrics]float64{
		perSecond:      decisions / l.took.Seconds(),
		p50:            l.latency.percentile(50) / 1e3,
		p99:            l.latency.percentile(99) / 1e3,
		p999:           l.latency.percentile(99.9) / 1e3,
		redisCPU:       (redisAfter.cpu - redisBefore.cpu) * 1e6 / decisions,
		clientCPU:      float64(cpu) / 1e3 / decisions,
		redisCalls:     (redisAfter.calls - redisBefore.calls) / decisions,
		redisCommands:  (redisAfter.commands - redisBefore.commands) / decisions,
		allocations:    float64(heapAfter.Mallocs-heapBefore.Mallocs) / decisions,
		allocatedBytes: float64(heapAfter.TotalAlloc-heapBefore.TotalAlloc) / decisions,
	}}, ctx.Err()
}
