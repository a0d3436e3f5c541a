package conformance

import (
	"time"

	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/internal/model"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

var drawAlgorithm = rapid.Custom(func(t *rapid.T) limit.Algorithm {
	switch rapid.IntRange(0, 5).Draw(t, "kind") {
	case 0:
		return limit.SlidingLog()
	case 1:
		return limit.GCRA()
	case 2:
		return limit.FixedWindow()
	case 3:
		return limit.SlidingLogZSet()
	}
	k := rapid.OneOf(rapid.IntRange(1, 4), rapid.IntRange(1, limit.MaxBuckets)).Draw(t, "k")
	return limit.SlidingCounter(k, rapid.SampledFrom([]limit.Rounding{limit.Estimate, limit.Strict}).Draw(t, "rounding"))
})

// drawLimit draws mostly small limits, and also odd and huge ones.
func drawLimit(a limit.Algorithm) *rapid.Generator[limit.Limit] {
	return rapid.Custom(func(t *rapid.T) limit.Limit {
		most := int64(limit.MaxQuota)
		if a.Same(limit.SlidingLog()) {
			most = 3000
		}
		quota := rapid.OneOf(rapid.Int64Range(1, 12), rapid.Int64Range(1, 3000), rapid.Int64Range(1, most)).Draw(t, "quota")
		window := rapid.OneOf(
			rapid.Int64Range(1000, 20_000),
			rapid.SampledFrom([]int64{1_000_000, 60_000_000, 86_400_000_000, limit.MaxWindow.Microseconds()}),
			rapid.Int64Range(1000, limit.MaxWindow.Microseconds()),
		).Draw(t, "window")
		l := limit.Per(quota, time.Duration(window)*time.Microsecond)
		if a.Same(limit.GCRA()) && rapid.Bool().Draw(t, "own burst") {
			withBurst := l.WithBurst(rapid.Int64Range(1, max(1, 2*quota)).Draw(t, "burst"))
			if withBurst.Validate() == nil {
				l = withBurst
			}
		}
		return l
	})
}

// drawUnits draws a number of units, which is often small.
func drawUnits(most int64) *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Int64Range(1, min(3, most)), rapid.Int64Range(1, most))
}

// drawGap draws how far time moves between two requests: not at all, a little, to about the edges of sub-windows
// and windows, past them, and now and then back.
func drawGap(t *rapid.T, window int64) int64 {
	switch rapid.IntRange(0, 9).Draw(t, "gap") {
	case 0, 1:
		return 0
	case 2, 3, 4:
		return rapid.Int64Range(1, max(1, window/10)).Draw(t, "little")
	case 5, 6:
		return rapid.Int64Range(1, window).Draw(t, "within")
	case 7:
		return window + rapid.Int64Range(-2, 2).Draw(t, "edge")
	case 8:
		return rapid.Int64Range(1, 3*window).Draw(t, "past")
	}
	return -rapid.Int64Range(1, 2*window).Draw(t, "back")
}

// drawPast draws units of the past, in any order: as many as an instance grants by itself, or many more; new, old,
// or too old to count.
func drawPast(capacity, window int64) *rapid.Generator[[]model.Past] {
	one := rapid.Custom(func(t *rapid.T) model.Past {
		return model.Past{
			Units: rapid.OneOf(rapid.Int64Range(1, min(3, capacity)), rapid.Int64Range(1, 3*capacity)).Draw(t, "units"),
			Age: rapid.OneOf(
				rapid.Just(int64(0)), rapid.Int64Range(0, window-1), rapid.Int64Range(0, 3*window),
				rapid.Map(rapid.Int64Range(-2, 2), func(n int64) int64 { return window + n }),
			).Draw(t, "age"),
		}
	})
	return rapid.OneOf(rapid.SliceOfN(one, 1, 3), rapid.SliceOfN(one, 0, 17))
}

func pastEntry(past []model.Past) remote.Entry {
	e := remote.Entry{Operation: lua.Charge}
	for _, p := range past {
		e.Charges = append(e.Charges, remote.Charge{Units: p.Units, Age: time.Duration(p.Age) * time.Microsecond})
	}
	return e
}
