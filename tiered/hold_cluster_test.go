package tiered

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Law 9: on a Cluster, HoldAll holds units in several slots. If one slot denies, the holds in the other slots are
// cancelled, and none is left.
func TestLaw9HoldAllOverSlots(t *testing.T) {
	t.Parallel()
	ctx, cluster := context.Background(), redistest.StartCluster(t, 3)
	client := cluster.Client(t)
	l := newLimiterOn(t, client, redistest.Prefix(), Deadline(5*time.Second))
	wide := newRule(t, l, "wide", limit.PerHour(1000), Use(limit.SlidingLog()))
	narrow := newRule(t, l, "narrow", limit.PerHour(10), Use(limit.SlidingLog()), Unsettled(GiveBack))
	free := func(r *Rule, key string) int64 {
		t.Helper()
		d, err := r.Peek(ctx, key, 1)
		if err != nil || d.Degraded() {
			t.Fatalf("%+v, %v", d, err)
		}
		return d.Remaining
	}
	for i := range 20 {
		a, b := fmt.Sprint("a", i), fmt.Sprint("b", i)
		taken := mustHold(t, narrow, b, 5, time.Minute)
		holds, d, err := l.HoldAll(ctx, time.Minute, Request{Rule: wide, Key: a, Cost: 100}, Request{Rule: narrow, Key: b, Cost: 6})
		if err != nil || holds != nil || !d[0].HeldBack || !d[1].Denied() {
			t.Fatalf("%+v, %+v, %v", holds, d, err)
		}
		redistest.Eventually(t, "the hold was cancelled", func() bool { return free(wide, a) == 1000 })
		k := l.key(a)
		if n := client.Exists(ctx, l.keys.Key("wide", k.inRedis())+":holds").Val(); n != 0 {
			t.Error("a line of a cancelled hold is left")
		}
		if err := taken.Cancel(ctx); err != nil {
			t.Fatal(err)
		}
		if holds, _, err = l.HoldAll(ctx, time.Minute, Request{Rule: wide, Key: a, Cost: 100}, Request{Rule: narrow, Key: b, Cost: 6}); err != nil || len(holds) != 2 {
			t.Fatalf("%+v, %v", holds, err)
		}
		mustSettle(t, holds[0], 40)
		mustSettle(t, holds[1], 3)
		if x, y := free(wide, a), free(narrow, b); x != 960 || y != 7 {
			t.Errorf("%d and %d units are free", x, y)
		}
	}
}
