package outage

import "testing"

// Law 11: what two shards know of losses of data adds up when slots move between them: the later loss counts, and the
// later of two clocks.
func TestLossesOfTwoShardsAddUp(t *testing.T) {
	for _, later := range []bool{false, true} {
		l := newShards(t, 0)
		l.reroute(mastersOf(map[string][]int{"a": ranges(0, 8), "b": ranges(8, 16)}))
		from, to := l.ofSlot(0), l.ofSlot(8)
		if later {
			from, to = to, from
		}
		l.ofSlot(0).settleFromNow(func(e *incident, _ bool) { e.forgotten, e.clock = 5, 7 })
		l.ofSlot(8).settleFromNow(func(e *incident, _ bool) { e.forgotten, e.clock = 9, 3 })
		if to.adopt(from); to.incident.Load().forgotten != 9 || to.incident.Load().clock != 7 {
			t.Errorf("%+v", *to.incident.Load())
		}
	}
}

// Law 11: an instance that joins a fleet in which another has not charged its grants yet settles.
func TestWhoJoinsWhileAnotherOwesSettles(t *testing.T) {
	l := newShards(t, 1)
	l.masters[0].heard.Unsettled = 1
	if err := l.Join(); err != nil || l.State() != Settling {
		t.Errorf("%v, %v", l.State(), err)
	}
}
