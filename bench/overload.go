package main

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/pprof"
	"time"
)

// overloadMetric is a figure that is measured when a subject is offered more calls than Redis can decide.
type overloadMetric int

const (
	peakRate overloadMetric = iota // decided per second while callers wait for their answers
	offeredRate
	decidedRate
	goodput // decidedRate by peakRate
	undecidedShare
	degradedShare
	failedShare
	allP99 // of all calls, however they ended
	decidedP99
	degradedP50
	undecidedP50
	undecidedP99
	undecidedMax
	breakerOpened
	overloadMetrics
)

// overloadNames are the names of the metrics in JSON. Shares are shares of calls.
var overloadNames = [overloadMetrics]string{
	"peak_per_second",
	"offered_per_second",
	"decided_per_second",
	"goodput",
	"undecided_share",
	"degraded_share",
	"failed_share",
	"all_p99_us",
	"decided_p99_us",
	"degraded_p50_us",
	"undecided_p50_us",
	"undecided_p99_us",
	"undecided_max_us",
	"breaker_opened",
}

// overload is the summary of all rounds for a subject.
type overload struct {
	workload string
	subject  string
	callers  int
	times    float64                  // offered calls relative to what Redis can decide
	values   [overloadMetrics]float64 // medians, except that breakerOpened is a sum
	rounds   [][overloadMetrics]float64
}

// measureOverload measures how much of the workload is decided while callers wait for their answers. Then it offers a
// multiple of that, whether or not answers come.
func measureOverload(ctx context.Context, s *subject, w *workload, callers int, times float64, span, warmUp time.Duration) (v [overloadMetrics]float64, err error) {
	pprof.SetGoroutineLabels(pprof.WithLabels(ctx, pprof.Labels("cell", label(w.name, size{callers: callers}, s.name))))
	defer pprof.SetGoroutineLabels(context.Background())
	if _, err := drive(ctx, s, w, callers, warmUp, nil); err != nil {
		return v, err
	}
	runtime.GC()
	before := s.timesOpened()
	waiting, err := drive(ctx, s, w, callers, span, nil)
	if err != nil {
		return v, err
	}
	v[peakRate] = float64(waiting.calls[allowed]+waiting.calls[denied]) / waiting.took.Seconds()
	if v[peakRate] == 0 { // no multiple of 0 can be offered
		return v, fmt.Errorf("%s: Redis decided nothing in time for %d callers who wait for their answers: the machine is too busy to measure overload", s.name, callers)
	}

	span *= 2
	o := offer(ctx, s, w, callers, times*v[peakRate], span)
	calls := float64(o.calls())
	v[offeredRate] = calls / max(span, o.made).Seconds()
	v[decidedRate] = float64(o.inTime) / span.Seconds()
	v[goodput] = v[decidedRate] / v[peakRate]
	v[undecidedShare] = float64(o.undecided.total) / calls
	v[degradedShare] = float64(o.degraded.total) / calls
	v[failedShare] = float64(o.failed) / calls
	v[allP99] = o.all().percentile(99) / 1e3
	v[decidedP99] = o.decided.percentile(99) / 1e3
	v[degradedP50] = o.degraded.percentile(50) / 1e3
	v[undecidedP50] = o.undecided.percentile(50) / 1e3
	v[undecidedP99] = o.undecided.percentile(99) / 1e3
	v[undecidedMax] = o.undecided.percentile(100) / 1e3
	v[breakerOpened] = float64(s.timesOpened() - before)
	return v, ctx.Err()
}

func newOverload(g *group, s *subject, callers int, rounds [][overloadMetrics]float64) overload {
	o := overload{workload: g.name, subject: s.name, callers: callers, times: g.overload.times, rounds: rounds}
	for m := range overloadMetrics {
		values := make([]float64, len(rounds))
		for i := range rounds {
			values[i] = rounds[i][m]
		}
		o.values[m] = median(values)
	}
	o.values[breakerOpened] = 0
	for i := range rounds {
		o.values[breakerOpened] += rounds[i][breakerOpened]
	}
	return o
}

func (o overload) MarshalJSON() ([]byte, error) {
	rounds := make([]map[string]float64, len(o.rounds))
	for i := range o.rounds {
		rounds[i] = named(o.rounds[i][:], overloadNames[:])
	}
	return json.Marshal(map[string]any{
		"workload": o.workload,
		"subject":  o.subject,
		"callers":  o.callers,
		"times":    o.times,
		"median":   named(o.values[:], overloadNames[:]),
		"rounds":   rounds,
	})
}
