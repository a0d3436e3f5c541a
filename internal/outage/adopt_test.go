package outage

import (
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/remote"
)

// Law 11: what two shards know of losses of data adds up when slots move between them: the later loss counts, the later
// of two clocks, and the later time since when Redis decides.
func TestLossesOfTwoShardsAddUp(t *testing.T) {
	for _, later := range []bool{false, true} {
		l := newShards(t, 0)
		l.reroute(mastersOf(map[string][]int{"a": ranges(0, 8), "b": ranges(8, 16)}))
		from, to := l.ofSlot(0), l.ofSlot(8)
		if later {
			from, to = to, from
		}
		l.ofSlot(0).settleFromNow(func(e *incident, _ bool) { e.forgotten, e.clock, e.decides = 5, 7, 2 })
		l.ofSlot(8).settleFromNow(func(e *incident, _ bool) { e.forgotten, e.clock, e.decides = 9, 3, 1 })
		to.adopt(from)
		if e := to.incident.Load(); e.forgotten != 9 || e.clock != 7 || e.decides != 2 {
			t.Errorf("%+v", *e)
		}
	}
}

// Law 11: an instance that joins a fleet in which another has not charged its grants yet, or has lost records of them,
// settles. If records were lost, only their rules settle in the end.
func TestWhoJoinsWhileAnotherOwesSettles(t *testing.T) {
	l := newShards(t, 1)
	l.masters[0].heard.Unsettled = 1
	if err := l.Join(); err != nil || l.State() != Settling {
		t.Errorf("another owes: %v, %v", l.State(), err)
	}
	l = newShards(t, 1)
	l.masters[0].heard.Lost = []remote.Loss{{Rule: "flooded", For: time.Hour}}
	if err := l.Join(); err != nil {
		t.Fatal(err)
	}
	l.now.Add(int64(settleAtLeast))
	l.heartbeat(t, l.first)
	flooded, other := newRule(t, "flooded", limit.PerDay(100), limit.SlidingLog()), newRule(t, "other", limit.PerDay(100), limit.SlidingLog())
	if !l.first.Settling(flooded) || l.first.Settling(other) {
		t.Errorf("another has lost records: their rule settles: %v, another rule: %v", l.first.Settling(flooded), l.first.Settling(other))
	}
}
