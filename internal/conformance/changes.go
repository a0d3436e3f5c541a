package conformance

import (
	"time"

	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/internal/model"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// changes: a rule gets another algorithm while its key is in use, and what is asked then
// is asked at the moments at which the past that went over makes a difference.
func (s suite) changes(t *rapid.T) {
	h := &history{key: s.newKey()}
	ask := func(now int64, operation int, cost int64) (out model.Outcome) {
		e, expect := h.entry(t, operation, cost)
		reply := s.run(t, []remote.Entry{e}, now)[0]
		want := expect(now)
		if got := outcome(reply); got != want {
			t.Fatalf("%v under %v, %+v at %d:\ngot   %+v\nmodel %+v", h.limit, h.algorithm, e, now, got, want)
		}
		h.remember(e, reply)
		return want
	}
	now, last := int64(epoch), model.Outcome{}
	for i := range rapid.IntRange(2, 3).Draw(t, "rules") {
		a := limit.GCRA() // has the longest story to tell
		if i > 0 {
			a = drawAlgorithm.Draw(t, "algorithm")
		}
		quota := rapid.OneOf(rapid.Int64Range(1, 12), rapid.Int64Range(256, 900)).Draw(t, "quota")
		window := time.Duration(rapid.SampledFrom([]int64{1000, 9973, 10_000, 60_000}).Draw(t, "window")) * time.Microsecond
		h.use(t, limit.Per(quota, window).WithBurst(rapid.Int64Range(1, quota).Draw(t, "burst")), a)
		for range rapid.IntRange(1, 8).Draw(t, "requests") {
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
