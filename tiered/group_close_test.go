package tiered

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// during calls a function once, while a command is on its way.
type during struct {
	slow
	f func()
}

func (d *during) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if d.on.Swap(false) {
			d.f()
		}
		return next(ctx, cmd)
	}
}

// Laws 9 and 12: if the limiter is closed while it decides a group over several slots, the group is still decided, and
// gives back what it was charged if it is denied. So does a denied group whose caller has left at the time
// that it set (DecideBy).
func TestLaws9And12CloseWaitsForGroups(t *testing.T) {
	for name, leaves := range map[string]bool{"waits": false, "has left": true} {
		t.Run(name, func(t *testing.T) {
			redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
				prefix, client, closing := redistest.Prefix(), bubble.Client(t), new(during)
				client.AddHook(closing)
				l := newLimiterOn(t, client, prefix, Deadline(time.Second), RememberDenials(0))
				l.script.DivideBySlot()
				tenant := newRule(t, l, "tenant", limit.PerDay(10), Use(limit.SlidingLog()))
				endpoint := newRule(t, l, "endpoint", limit.PerDay(1), Use(limit.SlidingLog()), OnOutage(Deny))
				mustAllow(t, endpoint, "e", 1)
				ctx := t.Context()
				if leaves { // before the second slot's answer; the refund is then on its way
					bubble.Late.Store(int64(60 * time.Millisecond))
					ctx = DecideBy(ctx, time.Now().Add(100*time.Millisecond))
				} else {
					closing.f = func() {
						go func() { _ = l.Close() }()
						synctest.Wait()
					}
					closing.on.Store(true)
				}
				ds, err := l.AllowAll(ctx, Request{Rule: tenant, Key: "t", Cost: 1}, Request{Rule: endpoint, Key: "e", Cost: 1})
				if err != nil || ds[0].Allowed {
					t.Errorf("%+v, %v", ds, err)
				}
				if err := l.Close(); err != nil {
					t.Error(err)
				}
				bubble.Late.Store(0)
				other := newRule(t, newLimiterOn(t, bubble.Client(t), prefix), "tenant", limit.PerDay(10), Use(limit.SlidingLog()))
				if free := left(t, other, "t"); free != 10 {
					t.Errorf("%d units are free, want 10", free)
				}
			})
		})
	}
}
