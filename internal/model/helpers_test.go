package model

import (
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"pgregory.net/rapid"
)

// subject is a limit and an algorithm that counts it, as drawn by tests.
type subject struct {
	l limit.Limit
	a limit.Algorithm
}

func (s subject) window() int64   { return s.l.Window().Microseconds() }
func (s subject) capacity() int64 { return s.a.Capacity(s.l) }

// bucket returns the length of a sub-window, rounded up.
func (s subject) bucket() int64 { return ceilDiv(s.window(), max(1, int64(s.a.Buckets()))) }

// longestLock returns the longest time for which a charge can affect the key.
func (s subject) longestLock() int64 {
	switch {
	case s.a.Buckets() > 0:
		// A bucket counts until all of it is older than the window.
		return ceilDiv(s.window()*int64(s.a.Buckets()+1), int64(s.a.Buckets()))
	case s.a.Same(limit.GCRA()):
		return mulDivCeil(s.l.Burst(), s.window(), s.l.Quota())
	}
	return s.window()
}

// start returns the model of a new key, as a *key so that tests can see the key's own time.
func (s subject) start(t *rapid.T) *key {
	m, err := New(s.l, s.a)
	if err != nil {
		t.Fatalf("New(%v, %v): %v", s.l, s.a, err)
	}
	return m.(*key)
}

var algorithms = func() []limit.Algorithm {
	all := []limit.Algorithm{limit.SlidingLog(), limit.GCRA(), limit.FixedWindow()}
	for _, k := range []int{1, 2, 3, 7, 16, limit.MaxBuckets} {
		all = append(all, limit.SlidingCounter(k, limit.Estimate), limit.SlidingCounter(k, limit.Strict))
	}
	return all
}()

func drawSubject(t *rapid.T) subject {
	quota := rapid.OneOf(
		rapid.Int64Range(1, 6),
		rapid.Int64Range(1, 2000),
		rapid.Int64Range(limit.MaxQuota-3, limit.MaxQuota),
	).Draw(t, "quota")
	window := time.Microsecond * time.Duration(rapid.OneOf(
		rapid.Int64Range(limit.MinWindow.Microseconds(), 1100),
		rapid.SampledFrom([]int64{1_000_000, 60_000_000, 86_400_000_000}),
		rapid.Int64Range(limit.MaxWindow.Microseconds()-3, limit.MaxWindow.Microseconds()),
	).Draw(t, "window"))
	l := limit.Per(quota, window)
	burst := rapid.SampledFrom([]int64{0, 1, quota, 2 * quota}).Draw(t, "burst")
	if bursting := l.WithBurst(burst); bursting.Validate() == nil {
		l = bursting
	}
	return subject{l: l, a: rapid.SampledFrom(algorithms).Draw(t, "algorithm")}
}

// drawNow draws the start of a history: early, today, or just before the start of a window.
func drawNow(t *rapid.T, s subject) int64 {
	const today = 1_800_000_000_000_000
	return rapid.SampledFrom([]int64{
		10 * s.window(),
		today,
		today - today%s.window() + s.window() - 1,
	}).Draw(t, "now")
}

// drawStep draws how much time passes until the next request. Most choices are moments at which an answer may
// change, or are next to them.
func drawStep(t *rapid.T, s subject, now int64, last Outcome) int64 {
	moment := rapid.SampledFrom([]int64{
		0, 0, 0, // at the same time
		1 + s.window()/(2*s.l.Quota()),
		s.bucket(),
		s.bucket() - now%s.bucket(), // a bucket's start, if its length is whole
		s.window(),
		s.window() - now%s.window(), // a window's start
		last.RetryAfter,
		last.NextAfter,
		last.ResetAfter,
		rapid.Int64Range(0, s.window()/4).Draw(t, "anywhere"),
	}).Draw(t, "moment")
	return max(0, moment+rapid.Int64Range(-1, 1).Draw(t, "neighbour"))
}

// drawCost mostly draws costs that just fit or just do not fit.
func drawCost(t *rapid.T, s subject, last Outcome) int64 {
	cost := rapid.SampledFrom([]int64{
		1,
		last.Remaining,
		last.Remaining + 1,
		s.capacity(),
		rapid.Int64Range(1, s.capacity()).Draw(t, "any cost"),
	}).Draw(t, "cost")
	return min(max(1, cost), s.capacity())
}

// grants lists the units granted in a history, by the key's own time, or by another clock that a test keeps.
type grants struct{ stamps, costs []int64 }

func (g *grants) add(stamp, cost int64) {
	g.stamps = append(g.stamps, stamp)
	g.costs = append(g.costs, cost)
}

func (g *grants) max(window int64) int64 { return MaxInWindow(g.stamps, g.costs, window) }
