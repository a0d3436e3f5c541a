package model

import (
	"testing"

	"pgregory.net/rapid"
)

// books has a random history of a key under one rule, and the units that were charged and given back in it.
type books struct {
	s       subject
	m       *key
	now     int64
	last    Outcome
	charges []charge
}

// charge is one charge of a history.
type charge struct {
	stamp int64
	open  int64 // units that may still be refunded: no unit is refunded twice
	net   int64 // units charged and not given back
}

func openBooks(t *rapid.T) *books {
	s := drawSubject(t)
	return &books{s: s, m: s.start(t), now: drawNow(t, s)}
}

// next charges a cost, charges as much of it as fits, or refunds units, some time later.
func (b *books) next(t *rapid.T) {
	b.now += drawStep(t, b.s, b.now, b.last)
	cost := drawCost(t, b.s, b.last)
	switch rapid.SampledFrom([]string{"decide", "up to", "refund", "refund"}).Draw(t, "operation") {
	case "decide":
		b.last = b.m.Decide(b.now, cost)
	case "up to":
		b.last = b.m.TakeUpTo(b.now, cost)
	default:
		b.refund(t)
		return
	}
	if b.last.Allowed {
		b.charges = append(b.charges, charge{b.last.Stamp, b.last.Granted, b.last.Granted})
	}
}

// refund refunds units of some charge.
func (b *books) refund(t *rapid.T) {
	if len(b.charges) == 0 {
		return
	}
	c := &b.charges[rapid.IntRange(0, len(b.charges)-1).Draw(t, "charge")]
	if c.open == 0 {
		return
	}
	units := rapid.SampledFrom([]int64{1, c.open, rapid.Int64Range(1, c.open).Draw(t, "some")}).Draw(t, "units")
	before := b.m.Clone().(*key)
	open := c.open
	if _, isLog := b.m.units.(*slidingLog); isLog && rapid.Bool().Draw(t, "undo") {
		open = 0
	}
	b.last = b.m.Refund(b.now, c.stamp, open, units)
	if b.last.Granted < 0 || b.last.Granted > units {
		t.Fatalf("%v %v: asked for %d units back: %+v", b.s.l, b.s.a, units, b.last)
	}
	if b.hasLeft(*c) {
		if b.last.Granted != 0 {
			t.Fatalf("%v %v: a charge that has left the window was given back: %+v", b.s.l, b.s.a, b.last)
		}
		checkSame(t, b.s, before, b.m, b.now)
	}
	c.net -= b.givenBack(*c, units)
	c.open -= units
}

// hasLeft reports whether no unit of a charge counts any more.
func (b *books) hasLeft(c charge) bool {
	alone := grants{[]int64{c.stamp}, []int64{c.open}}
	return freeByDefinition(b.s, alone, b.now) == b.s.capacity()
}

// givenBack returns how many units of a charge the last refund gave back. GCRA may give back a part of a unit,
// because the other part has returned by itself. It reports only whole units; here that unit counts as given back.
func (b *books) givenBack(c charge, units int64) int64 {
	if g, ok := b.m.units.(*gcra); ok {
		elapsed := rat(b.now - c.stamp)
		returned := floor(elapsed.Quo(elapsed, g.interval))
		return min(units, max(0, c.open-returned))
	}
	return b.last.Granted
}

// net returns the charges without the units that were given back.
func (b *books) net() (net grants) {
	for _, c := range b.charges {
		net.add(c.stamp, c.net)
	}
	return net
}

// Law 1 holds net of refunds: no window has more units that were charged and not given back than the algorithm's
// worst case.
func TestWorstCaseHoldsNetOfRefunds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := openBooks(t)
		for range rapid.IntRange(1, 60).Draw(t, "operations") {
			b.next(t)
			checkBounds(t, b.s, b.net())
		}
	})
}

// Law 1: after a refund, no more units are free, then or later, than if the refunded units had not been charged in
// the first place. With counters and fixed windows, exactly as many are free. A log is late, because it gives back
// the oldest units. GCRA is late, because it does not know how much of the key's debt would have been paid off
// without the charge.
func TestRefundsFreeNoMoreThanWasCharged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := openBooks(t)
		for range rapid.IntRange(1, 40).Draw(t, "operations") {
			b.next(t)
			for _, later := range []int64{0, 1, b.s.bucket(), b.last.ResetAfter / 2, b.s.window()} {
				b.checkFree(t, b.now+later)
			}
		}
	})
}

func (b *books) checkFree(t *rapid.T, now int64) {
	net := b.net()
	free, want := b.m.current().free(now), freeByDefinition(b.s, net, now)
	_, isGCRA := b.m.units.(*gcra)
	_, isLog := b.m.units.(*slidingLog)
	if free > want || free < want && !isGCRA && !isLog {
		t.Fatalf("%v %v: %d free after refunds, %d had the units not been charged", b.s.l, b.s.a, free, want)
	}
	if isGCRA {
		// Whole units could hide a difference, so the debts, which are exact fractions, are compared.
		lean := newGCRA(b.s.l.Quota(), b.s.window(), b.s.l.Burst())
		for i, stamp := range net.stamps {
			lean.charge(stamp, net.costs[i])
		}
		if owes := b.m.units.(*gcra).ahead(now); owes.Cmp(lean.ahead(now)) < 0 {
			t.Fatalf("%v: owes %v µs after refunds, %v had the units not been charged", b.s.l, owes, lean.ahead(now))
		}
	}
}

// A charge that is given back at once leaves no trace, under every algorithm.
func TestRefundAtOnceUndoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := openBooks(t)
		for range rapid.IntRange(0, 20).Draw(t, "operations") {
			b.next(t)
		}
		b.now += drawStep(t, b.s, b.now, b.last)
		// Only the number is compared: a log gives back its oldest units, which may differ from the newest. But if it undoes
		// the charge, it is as before.
		as := b.m.Clone().(*key)
		before := as.Clone().Peek(b.now, 1).Remaining
		out := b.m.TakeUpTo(b.now, drawCost(t, b.s, b.last))
		if !out.Allowed {
			return
		}
		if _, isLog := b.m.units.(*slidingLog); isLog {
			undone := b.m.Clone().(*key)
			undone.Refund(b.now, out.Stamp, 0, out.Granted)
			checkSame(t, b.s, as, undone, b.now)
		}
		back := b.m.Refund(b.now, out.Stamp, out.Granted, out.Granted)
		if back.Granted != out.Granted || back.Remaining != before {
			t.Fatalf("%v %v: %d were free; charged %+v, given back %+v", b.s.l, b.s.a, before, out, back)
		}
	})
}

// checkSame checks that two keys answer the same from now on.
func checkSame(t *rapid.T, s subject, a, b *key, now int64) {
	reset := a.Clone().Peek(now, 1).ResetAfter
	for _, later := range []int64{0, 1, s.bucket(), reset / 2, max(0, reset-1), reset, s.window()} {
		for _, cost := range []int64{1, (s.capacity() + 1) / 2, s.capacity()} {
			x, y := a.Clone().Peek(now+later, cost), b.Clone().Peek(now+later, cost)
			if x != y {
				t.Fatalf("%v %v: %d units %d µs later: %+v became %+v", s.l, s.a, cost, later, x, y)
			}
		}
	}
}
