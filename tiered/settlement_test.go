package tiered

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// This instance's own record, which decides in outages, contains exactly the units that holds have used. More
// would deny units that are free, and fewer would break law 11. Units that have left the window are not given
// back from the record. All this holds whether Redis or this instance granted the hold, and whether or not Redis
// is there for the settlement.
func TestSettlementsCorrectTheRecord(t *testing.T) {
	for name, lost := range map[string]struct{ before, after bool }{
		"with Redis":         {false, false},
		"without Redis":      {true, true},
		"Redis is lost then": {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			server, clock := redistest.Start(t), newVirtual()
			l := newLimiterOn(t, server.Client(t), redistest.Prefix(), VirtualClock(clock.now), ColdStart(0))
			r := newRule(t, l, "r", limit.PerMinute(100), Use(limit.SlidingLog()))
			keys := map[string]struct{ used, want int64 }{
				"less": {4, 4}, "all": {10, 10}, "more": {15, 15}, "none": {0, 0},
			}
			if lost.before {
				loseRedis(server, l)
			}
			holds, late := map[string]*Hold{}, map[string]*Hold{}
			for key := range keys {
				late[key] = mustHold(t, r, "late "+key, 10, time.Hour)
			}
			clock.advance(2 * time.Minute)
			for key := range keys {
				mustAllow(t, r, "late "+key, 20)
				holds[key] = mustHold(t, r, key, 10, time.Hour)
			}
			if lost.after && !lost.before {
				loseRedis(server, l)
			}
			for key, k := range keys {
				mustSettle(t, holds[key], k.used)
				if n := recorded(r, key); n != k.want {
					t.Errorf("%d of 10 units were used: %d are on record, want %d", k.used, n, k.want)
				}
				mustSettle(t, late[key], k.used)
				if n, want := recorded(r, "late "+key), 20+max(0, k.used-10); n != want {
					t.Errorf("%d of 10 units of an earlier window were used: %d are on record, want %d", k.used, n, want)
				}
			}
			l.sendWaiting(t.Context(), false) // a settlement that is sent again is recorded once
			for key, k := range keys {
				if n := recorded(r, key); n != k.want {
					t.Errorf("%d of 10 units were used: later %d are on record, want %d", k.used, n, k.want)
				}
			}
		})
	}
}

// Law 7: if the key of a hold cannot be read, its settlement is given up, and not sent again and again. The units
// count in this instance's own record as they were used.
func TestLaw7AnUnreadableHoldIsGivenUp(t *testing.T) {
	server, prefix := redistest.Shared(t), redistest.Prefix()
	l := newLimiterOn(t, server.Client(t), prefix)
	r := newRule(t, l, "r", limit.PerHour(100))
	for i, used := range []int64{4, 15} {
		key := fmt.Sprint("k", i)
		h := mustHold(t, r, key, 10, time.Minute)
		server.Client(t).Set(t.Context(), prefix+":{"+key+"}:r", "damaged", time.Minute)
		mustSettle(t, h, used)
		if c := l.Stats().Holds; c.Lost != int64(i+1) || c.Unsettled != 0 || c.Open != 0 || c.Settled != 0 {
			t.Errorf("%+v", c)
		}
		if n := recorded(r, key); n != used {
			t.Errorf("%d units are on record, want %d", n, used)
		}
	}
}

// If a hold was given back so long ago that Redis no longer knows it, settling it still charges the units that it
// has used, as it does for a hold that was given back a moment ago.
func TestAHoldGivenBackLongAgoIsChargedForWhatItUsed(t *testing.T) {
	clock := newVirtual()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), VirtualClock(clock.now))
	for _, policy := range []UnsettledPolicy{Keep, GiveBack} {
		for _, used := range []int64{0, 30, 50, 60} {
			lost := l.Stats().Holds.Lost
			r := newRule(t, l, policy.String()[:1], limit.PerDay(100), Use(limit.SlidingLog()), Unsettled(policy))
			h := mustHold(t, r, "k", 50, time.Minute)
			for range 2 { // the hold is given back, and then forgotten
				clock.advance(time.Hour)
				mustSettle(t, mustHold(t, r, "k", 1, time.Minute), 1)
			}
			mustSettle(t, h, used)
			want := 98 - used
			if policy == Keep {
				want = 98 - max(50, used)
			}
			if n := left(t, r, "k"); n != want {
				t.Errorf("%v, %d of 50 units used: %d are free, want %d", policy, used, n, want)
			}
			if n := recorded(r, "k"); n != 2+used {
				t.Errorf("%v, %d of 50 units used: %d are on record, want %d", policy, used, n, 2+used)
			}
			if n := l.Stats().Holds.Lost - lost; n != 1 {
				t.Errorf("%v, %d of 50 units used: %d holds are counted as lost", policy, used, n)
			}
			// If Redis has forgotten a hold before its end, only the units used beyond the held ones are charged.
			again := mustHold(t, r, "k", 2, time.Minute)
			if err := r.Reset(context.Background(), "k"); err != nil {
				t.Fatal(err)
			}
			mustSettle(t, again, used)
			if n := left(t, r, "k"); n != 100-max(0, used-2) || recorded(r, "k") != 100-n {
				t.Errorf("%v, %d of 2 units used of a key that was reset: %d are free, %d on record", policy, used, n, recorded(r, "k"))
			}
			if err := r.Reset(context.Background(), "k"); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Law 3: Redis is lost, and comes back without its data. Units that a hold used beyond the held ones meanwhile
// are charged once: with the other units on record, which are charged again, and not by the settlement, which waited.
func TestLaw3ASettlementThatWaitedForARedisWithoutDataIsChargedOnce(t *testing.T) {
	t.Parallel()
	server, prefix := redistest.Start(t), redistest.Prefix()
	l := newLimiterOn(t, server.Client(t), prefix, Deadline(time.Second), RememberDenials(0))
	redistest.Eventually(t, "Redis decides", func() bool { return l.State() == Healthy })
	r := newRule(t, l, "r", limit.PerHour(200), Use(limit.SlidingLog()))
	h := mustHold(t, r, "k", 10, time.Hour)
	loseRedis(server, l)
	mustSettle(t, h, 30)
	if n := recorded(r, "k"); n != 30 {
		t.Errorf("%d units are on record without Redis, want 30", n)
	}
	server.Restart()
	redistest.Eventually(t, "it is settled", func() bool { return l.Stats().Holds.Unsettled == 0 && l.Stats().MemoryLosses == 1 })
	mustAllow(t, r, "k", 1)
	redistest.Eventually(t, "what was lost is charged", func() bool { return !l.shard.Owes() && l.Stats().ChargedBackUnits > 0 })
	if n := recorded(r, "k"); n != 31 {
		t.Errorf("%d units are on record, want 31", n)
	}
	if free := peekFrom(t, server, prefix, r, "k"); free != 200-31 {
		t.Errorf("%d units are free with 31 used, want %d", free, 200-31)
	}
}
