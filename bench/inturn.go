package main

import (
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/pprof"
	"time"
)

// measureInTurn has one caller ask all subjects in turn, call by call, in random order. It measures only latency,
// because other costs cannot be attributed to one subject. The latency of a single caller is mostly the time in which
// client and server wake each other up. It is four times as long if the scheduler has put them on different cores,
// where they stay for seconds. Subjects that are measured one after another would therefore not be comparable.
func measureInTurn(ctx context.Context, group string, subjects []*subject, w *workload, span, warmUp time.Duration) []measurement {
	pprof.SetGoroutineLabels(pprof.WithLabels(ctx, pprof.Labels("cell", label(group, size{callers: 1}, "all in turn"))))
	defer pprof.SetGoroutineLabels(context.Background())
	askInTurn(ctx, subjects, w, warmUp)
	runtime.GC()
	results := make([]measurement, len(subjects))
	for i, l := range askInTurn(ctx, subjects, w, span) {
		for m := range metrics {
			results[i].values[m] = math.NaN()
		}
		results[i].load = l
		results[i].values[p50] = l.latency.percentile(50) / 1e3
		results[i].values[p99] = l.latency.percentile(99) / 1e3
		results[i].values[p999] = l.latency.percentile(99.9) / 1e3
	}
	return results
}

func askInTurn(ctx context.Context, subjects []*subject, w *workload, span time.Duration) []*load {
	ctx, cancel := callerContext(ctx)
	defer cancel()
	loads := make([]*load, len(subjects))
	order := make([]int, len(subjects))
	for i := range subjects {
		loads[i], order[i] = &load{}, i
	}
	pick := w.picker(0)
	for began := time.Now(); time.Since(began) < span && ctx.Err() == nil; {
		rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, i := range order {
			started := time.Now()
			loads[i].call(ctx, subjects[i].decides[0], pick())
			loads[i].latency.add(time.Since(started))
		}
	}
	return loads
}
