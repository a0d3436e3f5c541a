package remotetest

import (
	"context"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/model"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// hugePast charges units of the past: a few, or as many as can be said.
func (s suite) hugePast(t *testing.T, l limit.Limit, reference model.Model, e remote.Entry, now int64) {
	t.Helper()
	past := make([]model.Past, 17)
	for i := range past {
		past[i] = model.Past{Units: l.Quota()/97 + int64(i), Age: l.Window().Microseconds() * int64(i) / 16}
		if e.Sequence%2 == 0 {
			past[i].Units = lua.MaxUnits
		}
	}
	e.Operation, e.Charges = lua.Charge, pastEntry(past).Charges
	replies, err := s.backend.Run(context.Background(), []remote.Entry{e}, now)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := outcome(replies[0]), reference.Charge(now, e.Marker, e.Sequence, past); got != want {
		t.Fatalf("%v, charge %d of the past:\ngot   %+v\nmodel %+v", l, e.Sequence, got, want)
	}
}

// hugeAndOdd is law 10 where it is hardest: products far above 2^53, intervals that
// are no whole number of µs, prime windows and quotas. Every field equals the model's,
// which computes with big integers.
func (s suite) hugeAndOdd(t *testing.T) {
	year := limit.MaxWindow
	for _, l := range []limit.Limit{
		limit.Per(limit.MaxQuota, year),
		limit.Per(limit.MaxQuota-87, year-time.Microsecond),
		limit.Per(limit.MaxQuota-87, time.Millisecond).WithBurst(limit.MaxQuota - 87),
		limit.Per(1_000_003, year-time.Microsecond).WithBurst(1_000_003),
		limit.PerSecond(3_000_000),
		limit.PerSecond(700_000).WithBurst(7),
		limit.PerSecond(10_000_000),
		limit.Per(1, year),
		limit.Per(7, 1_000_003*time.Microsecond),
	} {
		for _, a := range []limit.Algorithm{
			limit.SlidingCounter(1, limit.Estimate),
			limit.SlidingCounter(7, limit.Estimate),
			limit.SlidingCounter(limit.MaxBuckets, limit.Estimate),
			limit.SlidingCounter(limit.MaxBuckets, limit.Strict),
			limit.GCRA(),
			limit.FixedWindow(),
		} {
			rule, err := remote.NewRule(l, a)
			if err != nil {
				t.Fatal(err)
			}
			reference, err := model.New(l, a)
			if err != nil {
				t.Fatal(err)
			}
			key, now, window := s.newKey(), int64(epoch), l.Window().Microseconds()
			capacity := a.Capacity(l)
			for i := range int64(60) {
				now += window * (i % 7) / 17
				cost := max(1, capacity/(3+i%5)-i)
				replies, err := s.backend.Run(context.Background(), []remote.Entry{{Key: key, Rule: rule, Cost: cost}}, now)
				if err != nil {
					t.Fatal(err)
				}
				if got, want := outcome(replies[0]), reference.Decide(now, cost); got != want {
					t.Fatalf("%v under %v, request %d:\ngot   %+v\nmodel %+v", l, a, i, got, want)
				}
				if i%9 == 8 {
					s.hugePast(t, l, reference, remote.Entry{Key: key, Rule: rule, Marker: "a", Sequence: i}, now)
				}
			}
		}
	}
}
