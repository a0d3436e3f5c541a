package conformance

import (
	"time"

	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/internal/model"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// drawChanged draws each algorithm equally often. Its counters mostly have few sub-windows, so that all of them may
// hold units.
var drawChanged = rapid.OneOf(rapid.SampledFrom([]limit.Algorithm{
	limit.GCRA(), limit.SlidingLog(), limit.SlidingLogZSet(), limit.FixedWindow(),
	limit.SlidingCounter(1, limit.Estimate), limit.SlidingCounter(3, limit.Strict), limit.SlidingCounter(8, limit.Estimate),
}), drawAlgorithm)

// changes checks rules that get another algorithm while their key is in use. Its requests come at moments at which
// the past that the new algorithm inherits makes a difference.
func (s suite) changes(t *rapid.T) {
	h := &history{key: s.newKey()}
	ask := func(now int64, operation int, cost int64) (out model.Outcome) {
		e, expect := h.entry(t, operation, cost)
		out = expect(now)
		h.remember(e, s.check(t, e, now, out))
		return out
	}
	now, last := int64(epoch), model.Outcome{}
	for range rapid.IntRange(2, 3).Draw(t, "rules") {
		a := drawChanged.Draw(t, "algorithm")
		quota := rapid.OneOf(rapid.Int64Range(1, 12), rapid.Int64Range(256, 900)).Draw(t, "quota")
		window := time.Duration(rapid.SampledFrom([]int64{1000, 9973, 10_000, 60_000}).Draw(t, "window")) * time.Microsecond
		l := limit.Per(quota, window).WithBurst(rapid.Int64Range(1, quota).Draw(t, "burst"))
		if a.Same(limit.FixedWindow()) && rapid.Bool().Draw(t, "of the calendar") {
			l = limit.PerCalendar(quota, limit.CalendarDay, time.UTC)
		}
		h.use(t, l, a)
		steady, some := rapid.Bool().Draw(t, "steady"), rapid.SampledFrom([]int64{1 + quota/20, 1 + quota/4}).Draw(t, "units of each")
		for range rapid.IntRange(1, 8).Draw(t, "requests") {
			if steady { // puts units in many sub-windows, some of them older than a shorter window
				now += h.window() / 10
				last = ask(now, lua.Take, min(some, h.algorithm.Capacity(h.limit)))
				continue
			}
			now += max(0, rapid.SampledFrom([]int64{
				0, 1, last.RetryAfter - 1, last.NextAfter, last.ResetAfter - 1, h.window() / 10, h.window() - now%h.window(),
			}).Draw(t, "gap"))
			operation := rapid.SampledFrom([]int{lua.Take, lua.TakeUpTo, lua.Peek, lua.Refund}).Draw(t, "operation")
			capacity := h.algorithm.Capacity(h.limit)
			cost := rapid.SampledFrom([]int64{1, last.Remaining + 1, capacity/2 + 1, capacity}).Draw(t, "cost")
			last = ask(now, operation, min(cost, capacity))
		}
	}
}
