package model

import (
	"testing"

	"pgregory.net/rapid"
)

// A peek answers as a decision would, and changes nothing.
func TestPeekTellsAndChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := openBooks(t)
		for range rapid.IntRange(1, 30).Draw(t, "operations") {
			b.next(t)
			now := b.now + drawStep(t, b.s, b.now, b.last)
			cost := drawCost(t, b.s, b.last)
			before := b.m.Clone().(*key)
			peek, decision := b.m.Peek(now, cost), b.m.Clone().Decide(now, cost)
			checkSame(t, b.s, before, b.m, b.now)
			if decision.Allowed {
				// Only the consequences of the charge differ.
				decision.Granted, decision.Remaining = 0, decision.Remaining+cost
				decision.ResetAfter = peek.ResetAfter
			}
			if peek != decision {
				t.Fatalf("%v %v: peeked %+v, decided %+v", b.s.l, b.s.a, peek, decision)
			}
		}
	})
}

// Taking up to n units is the same as deciding the smaller of n and the number of free units. If no unit is free,
// it is the same as deciding one unit, which is denied.
func TestTakeUpToTakesWhatFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := openBooks(t)
		for range rapid.IntRange(1, 30).Draw(t, "operations") {
			b.next(t)
			now := b.now + drawStep(t, b.s, b.now, b.last)
			n := drawCost(t, b.s, b.last)
			free := b.m.Clone().Peek(now, 1).Remaining
			upTo, decided := b.m.Clone().(*key), b.m.Clone().(*key)
			got, want := upTo.TakeUpTo(now, n), decided.Decide(now, max(1, min(n, free)))
			if got != want || got.Allowed != (free > 0) || got.Granted != min(n, free) {
				t.Fatalf("%v %v: up to %d of %d free: %+v, want %+v", b.s.l, b.s.a, n, free, got, want)
			}
			checkSame(t, b.s, upTo, decided, now)
		}
	})
}
