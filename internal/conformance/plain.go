package conformance

import (
	"time"

	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/internal/model"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

var drawPlainAlgorithm = rapid.SampledFrom([]limit.Algorithm{
	limit.GCRA(), limit.GCRA(), limit.SlidingLog(), limit.SlidingLog(), limit.FixedWindow(),
	limit.SlidingCounter(1, limit.Estimate), limit.SlidingCounter(4, limit.Strict), limit.SlidingCounter(16, limit.Estimate),
})

// drawPlainLimit draws small limits, under which a unit of GCRA mostly takes a whole number of microseconds. Some
// quotas and windows end in the byte of a % or a [, which would be part of a pattern in Lua.
func drawPlainLimit(t *rapid.T, a limit.Algorithm) limit.Limit {
	interval := rapid.SampledFrom([]int64{1_000, 4_096, 65_536, 1_000_000, 1 << 24, 3_600_000_000, 1 << 36}).Draw(t, "interval")
	quota := rapid.OneOf(rapid.Int64Range(1, 12), rapid.Int64Range(1, 60), rapid.SampledFrom([]int64{'%', '['})).Draw(t, "quota")
	odd := rapid.SampledFrom([]int64{0, 0, 0, 0, 1, 7, '%', '['}).Draw(t, "odd")
	l := limit.Per(quota, time.Duration(quota*interval+odd)*time.Microsecond)
	if a.Same(limit.GCRA()) {
		l = l.WithBurst(rapid.Int64Range(1, 3*quota).Draw(t, "burst"))
	}
	return l
}

// plain checks the same for the most common requests, for which the script has a short path, with other operations
// between them now and then.
func (s suite) plain(t *rapid.T) {
	histories := make([]*history, rapid.IntRange(1, 3).Draw(t, "keys"))
	for i := range histories {
		histories[i] = &history{key: s.newKey(), sequences: make(map[string]int64)}
		a := drawPlainAlgorithm.Draw(t, "algorithm")
		histories[i].use(t, drawPlainLimit(t, a), a)
	}
	somethingElse := rapid.Bool().Draw(t, "something else")
	now := int64(epoch)
	for range rapid.IntRange(1, 20).Draw(t, "batches") {
		h := rapid.SampledFrom(histories).Draw(t, "by the window of")
		gap := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 2*h.window()/h.limit.Quota()), rapid.Int64Range(0, h.window()))
		if somethingElse {
			// The offset then has a number of bytes that are 0, except one.
			back := rapid.SampledFrom([]int64{-1, -1 << 8, -1 << 16, -1 << 24, -1 << 32})
			gap = rapid.OneOf(gap, rapid.Int64Range(-h.window(), 2*h.window()), back)
		}
		now += gap.Draw(t, "gap")
		chosen := rapid.SliceOfN(rapid.SampledFrom(histories), 1, 6).Draw(t, "entries")
		entries := make([]remote.Entry, len(chosen))
		expected := make([]model.Outcome, len(chosen))
		for i, h := range chosen {
			var expect func(int64) model.Outcome
			what := 30
			if somethingElse {
				what = rapid.IntRange(0, 30).Draw(t, "what")
			}
			switch what {
			case 0:
				entries[i], expect = h.draw(t)
			case 1, 2:
				h.use(t, drawPlainLimit(t, h.algorithm), h.algorithm)
				fallthrough
			default:
				cost := rapid.Int64Range(1, min(3, h.algorithm.Capacity(h.limit))).Draw(t, "cost")
				if entries[i], expect = h.entry(t, lua.Take, cost); rapid.IntRange(0, 3).Draw(t, "counted") == 0 {
					entries[i], expect = h.counted(t, cost)
				}
			}
			expected[i] = expect(now)
		}
		for i, reply := range s.checkAll(t, entries, now, expected) {
			chosen[i].remember(entries[i], reply)
		}
	}
}
