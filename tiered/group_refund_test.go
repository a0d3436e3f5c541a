package tiered

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// withoutRoom turns away the first refunds, as if too many decisions waited.
type withoutRoom struct {
	outage.Decider
	turnsAway atomic.Int64
}

func (w *withoutRoom) Decide(ctx context.Context, e remote.Entry) (remote.Reply, error) {
	if e.Operation == lua.Refund && w.turnsAway.Add(-1) >= 0 {
		return remote.Reply{}, remote.ErrNoRoom
	}
	return w.Decider.Decide(ctx, e)
}

// Law 9: a group over several slots that is denied gives back what it was charged, even if its refund finds no room at
// first. If there is no room until the deadline, the refund is given up.
func TestLaw9RefundsOfDeniedGroupsWaitForRoom(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		const deadline = 50 * time.Millisecond
		l := newLimiterOn(t, bubble.Client(t), redistest.Prefix(), Deadline(deadline), RememberDenials(0))
		l.script.DivideBySlot()
		tenant := newRule(t, l, "tenant", limit.PerDay(10), Use(limit.SlidingLog()))
		endpoint := newRule(t, l, "endpoint", limit.PerDay(1), Use(limit.SlidingLog()))
		mustAllow(t, endpoint, "e", 1)
		full := &withoutRoom{Decider: l.shard.Decider}
		l.shard.Decider = full
		for _, c := range []struct{ turnsAway, free int64 }{{5, 10}, {1000, 9}} {
			full.turnsAway.Store(c.turnsAway)
			began := time.Now()
			ds, err := l.AllowAll(t.Context(), Request{Rule: tenant, Key: "t", Cost: 1}, Request{Rule: endpoint, Key: "e", Cost: 1})
			if err != nil || ds[0].Allowed {
				t.Fatalf("%+v, %v", ds, err)
			}
			if free := left(t, tenant, "t"); free != c.free {
				t.Errorf("%d refunds find no room: %d units are free, want %d", c.turnsAway, free, c.free)
			}
			if took := time.Since(began); took > deadline+2*refundAgain {
				t.Errorf("%d refunds find no room: the call took %v", c.turnsAway, took)
			}
		}
	})
}
