package tiered

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

const lostQuota, lostEstimate = 1000, 10

// holdThatIsLost makes a hold of lostEstimate units of the key "k", which Redis then loses with all its data. If early is
// set, the hold is settled while the data are lost.
func holdThatIsLost(t *testing.T, server *redistest.Server, prefix string, unsettled UnsettledPolicy, life time.Duration, early bool, used int64) (*Limiter, *Rule, *Hold) {
	t.Helper()
	l := newLimiterOn(t, server.Client(t), prefix, Deadline(5*time.Second))
	awaitHealthy(t, l)
	r := newRule(t, l, "r", limit.PerHour(lostQuota), Use(limit.SlidingLog()), Unsettled(unsettled))
	h := mustHold(t, r, "k", lostEstimate, life)
	redistest.Eventually(t, "its life is over", func() bool { return life > time.Minute || l.now() > h.ends.Load() })
	if early {
		l.shard.Breaker.ForceOpen(errors.New("Redis is lost"))
		mustSettle(t, h, used)
	}
	if err := server.Client(t).FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "the loss is noticed, and Redis is back", func() bool { return l.Stats().MemoryLosses == 1 && !l.Degraded() })
	return l, r, h
}

// Law 3: units of a hold that Redis loses with all its data are charged again with the other units of this instance.
// The settlement of the hold, which Redis does not know any more, charges none of them once more.
func TestLaw3LostHoldsAreChargedOnce(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		unsettled UnsettledPolicy
		life      time.Duration
		used      int64
		early     bool // the settlement waits for Redis while the data are lost
		want      int64
	}{
		"more was used, settled without Redis":           {Keep, time.Hour, 15, true, 15},
		"less was used, settled without Redis":           {Keep, time.Hour, 4, true, 4},
		"more was used":                                  {Keep, time.Hour, 15, false, 15},
		"to be given back, settled without Redis":        {GiveBack, time.Hour, 15, true, 15},
		"to be given back, settled without Redis, late":  {GiveBack, time.Millisecond, 15, true, 15},
		"to be given back, more was used, settled late":  {GiveBack, time.Millisecond, 15, false, 15},
		"to be given back, less was used, settled late":  {GiveBack, time.Millisecond, 4, false, lostEstimate}, // the estimate stays charged
		"to be given back, all were used, settled early": {GiveBack, time.Hour, lostEstimate, false, lostEstimate},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, prefix := redistest.Start(t), redistest.Prefix()
			l, r, h := holdThatIsLost(t, server, prefix, test.unsettled, test.life, test.early, test.used)
			mustAllow(t, r, "k", 1)
			if !test.early {
				redistest.Eventually(t, "the estimate is charged again", func() bool { return !l.shard.Owes() && l.Stats().ChargedBackUnits > 0 })
				mustSettle(t, h, test.used)
			}
			redistest.Eventually(t, "all is charged", func() bool {
				return l.Stats().Holds.Unsettled == 0 && !l.shard.Owes() && l.Stats().ChargedBackUnits > 0
			})
			if charged := lostQuota - peekFrom(t, server, prefix, r, "k"); charged != test.want+1 {
				t.Errorf("%d units are charged, want %d and 1: %+v", charged, test.want, l.Stats().Holds)
			}
		})
	}
}

// Law 3: a settlement may be the last use that this instance makes of a key, for example because later requests go to
// another instance. What the hold used is charged again nevertheless, after a loss of data as without one.
func TestLaw3LostHoldsAreChargedIfTheKeyIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		unsettled UnsettledPolicy
		life      time.Duration
		used      int64
		early     bool // the settlement waits for Redis while the data are lost
	}{
		"more was used, settled without Redis":          {Keep, time.Hour, 15, true},
		"less was used, settled without Redis":          {Keep, time.Hour, 4, true},
		"more was used":                                 {Keep, time.Hour, 15, false},
		"less was used":                                 {Keep, time.Hour, 4, false},
		"all were used":                                 {Keep, time.Hour, lostEstimate, false},
		"to be given back, settled without Redis":       {GiveBack, time.Hour, 15, true},
		"to be given back, more was used, settled late": {GiveBack, time.Millisecond, 15, false},
		"to be given back, less was used, settled late": {GiveBack, time.Millisecond, 4, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, prefix := redistest.Start(t), redistest.Prefix()
			l, r, h := holdThatIsLost(t, server, prefix, test.unsettled, test.life, test.early, test.used)
			if !test.early {
				mustSettle(t, h, test.used)
			}
			redistest.Eventually(t, "all is charged", func() bool { return l.Stats().Holds.Unsettled == 0 && !l.shard.Owes() })
			if charged := lostQuota - peekFrom(t, server, prefix, r, "k"); charged != test.used {
				t.Errorf("%d units are charged, want %d: %+v", charged, test.used, l.Stats().Holds)
			}
		})
	}
}
