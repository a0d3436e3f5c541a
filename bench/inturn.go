package main

import (
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/pprof"
	"time"
)

// measureInTurn has one caller ask each of the subjects, call by call, in an order that
// changes each time. Only the latency is measured: the rest cannot be told apart. For a
// caller who is alone that is mostly how fast client and server wake each other up, which
// takes four times as long when the system has put them on different cores. It leaves them
// there for seconds, so subjects that are measured one after another are not compared.
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
