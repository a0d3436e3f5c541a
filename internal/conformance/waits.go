package conformance

import (
	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// waits checks that retry after, next after and reset after are exact. If nothing else happens, the denied cost is
// granted at the end of its wait, and not a microsecond earlier.
func (s suite) waits(t *rapid.T) {
	a := drawAlgorithm.Draw(t, "algorithm")
	l := drawLimit(a).Draw(t, "limit")
	rule, _ := newPair(t, l, a)
	key, capacity := s.newKey(), a.Capacity(l)
	now := epoch + rapid.Int64Range(0, 10*l.Window().Microseconds()).Draw(t, "start")
	ask := func(operation int, at, cost int64) remote.Reply {
		return s.run(t, []remote.Entry{{Key: key, Rule: rule, Operation: operation, Cost: cost}}, at)[0]
	}
	exact := func(what string, operation int, wait, cost int64, of remote.Reply) {
		before, then := ask(operation, now+wait-1, cost), ask(operation, now+wait, cost)
		if wait < 1 || before.Status != remote.Denied || then.Status != remote.Allowed {
			t.Fatalf("%v under %v, %d units at %d: %s of %d µs is not exact\nanswer       %+v\n1 µs earlier %+v\nthen         %+v",
				l, a, cost, now, what, wait, of, before, then)
		}
	}
	for range rapid.IntRange(1, 20).Draw(t, "requests") {
		now += max(0, drawGap(t, l.Window().Microseconds()))
		cost := drawUnits(capacity).Draw(t, "cost")
		reply := ask(lua.Take, now, cost)
		if reset := reply.ResetAfter.Microseconds(); reset > 0 {
			exact("reset after", lua.Peek, reset, capacity, reply)
		}
		if reply.Status == remote.Allowed {
			continue
		}
		if reply.Remaining == 0 {
			exact("next after", lua.Peek, reply.NextAfter.Microseconds(), 1, reply)
		}
		retry := reply.RetryAfter.Microseconds()
		exact("retry after", lua.Take, retry, cost, reply)
		now += retry
	}
}
