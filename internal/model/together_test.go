package model

import (
	"testing"

	"pgregory.net/rapid"
)

// Units of one moment count the same whether they are charged one by one or together, if all of them fit. So tests
// of many equal decisions need not make each of them.
func TestUnitsOfOneMomentAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSubject(t)
		together := s.start(t)
		now := drawNow(t, s)
		var last Outcome
		for range rapid.IntRange(0, 10).Draw(t, "requests before") {
			last = together.Decide(now, drawCost(t, s, last))
			now += drawStep(t, s, now, last)
		}
		free := together.Peek(now, 1).Remaining
		if free == 0 {
			return
		}
		count := rapid.Int64Range(1, min(free, 50)).Draw(t, "count")
		cost := rapid.Int64Range(1, free/count).Draw(t, "cost")
		single := together.Clone()

		got := together.Decide(now, cost*count)
		var want Outcome
		for range count {
			want = single.Decide(now, cost)
		}
		want.Granted = cost * count
		if got != want {
			t.Fatalf("%v %v, %d times %d units at %d:\ntogether   %+v\none by one %+v", s.l, s.a, count, cost, now, got, want)
		}
		for range 10 {
			now += drawStep(t, s, now, got)
			if got, want = together.Peek(now, 1), single.Peek(now, 1); got != want {
				t.Fatalf("%v %v, later, at %d:\ntogether   %+v\none by one %+v", s.l, s.a, now, got, want)
			}
		}
	})
}
