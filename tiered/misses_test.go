package tiered

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/breaker"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// Law 11: while Redis often misses deadlines, it does not decide alone. When it no longer misses them, it decides
// alone again. A lost Redis and an unreadable key do not count as misses.
func TestLaw11AnInstanceWithManyMissesSettles(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) { // a heartbeat that is late changes the state
		told := &states{}
		l := newLimiterOn(t, bubble.Client(t), redistest.Prefix(), Deadline(50*time.Millisecond), RememberDenials(0), OnStateChange(told.add))
		r := newRule(t, l, "r", limit.PerHour(1000))
		another(t, l)(false)
		redistest.Eventually(t, "there are two", func() bool { return l.FleetSize() == 2 })
		redistest.Eventually(t, "Redis has granted 10", func() bool {
			d, err := r.AllowN(context.Background(), "k", 10)
			return err == nil && d.Tier == limit.TierRedis
		})
		miss := func(err error) func() bool {
			return func() bool {
				without(r, "k", 1, lua.Peek, err)
				return l.State() == Settling
			}
		}
		for _, other := range []error{breaker.ErrOpen, remote.ErrUnreadable} {
			for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
				if miss(other)() {
					t.Fatalf("settles for %v", other)
				}
			}
		}
		redistest.Eventually(t, "it settles", miss(remote.ErrNoAnswer))

		// Each of the two instances may grant what it granted before, and half of the free units. Redis would grant
		// more.
		if d, err := r.AllowN(context.Background(), "k", 700); err != nil || d.Allowed || d.Tier != limit.TierOverload {
			t.Errorf("%+v, %v", d, err)
		}
		redistest.Eventually(t, "Redis decides alone again", func() bool { return l.State() == Healthy })
		redistest.Eventually(t, "it would grant more", func() bool {
			d, err := r.Peek(context.Background(), "k", 700)
			return err == nil && d.Allowed && d.Tier == limit.TierRedis
		})

		l.shard.Breaker.ForceOpen(errors.New("lost"))
		redistest.Eventually(t, "all is told", func() bool { return len(told.all()) >= 3 })
		if s := told.all(); s[0] != Settling || s[1] != Healthy || s[2] != Outage {
			t.Errorf("told %v", s)
		}
	})
}

// Decisions made without Redis because it is overloaded have another tier than those made because it is lost.
func TestLoadIsNotALostRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t), redistest.Prefix())
	r := newRule(t, l, "r", limit.PerHour(10))
	decides := func(err error) limit.Tier {
		return without(r, "k", 1, lua.Peek, err).Tier
	}
	for _, test := range []struct {
		err  error
		want limit.Tier
	}{
		{remote.ErrNoRoom, limit.TierOverload},
		{remote.ErrNoAnswer, limit.TierOverload},
		{errors.New("READONLY"), limit.TierFallback},
		{remote.ErrUnreadable, limit.TierFallback},
		{breaker.ErrOpen, limit.TierFallback},
	} {
		if got := decides(test.err); got != test.want {
			t.Errorf("%v: %v decides, want %v", test.err, got, test.want)
		}
	}
	server.Pause()
	t.Cleanup(server.Resume)
	redistest.Eventually(t, "Redis has been silent", func() bool {
		d, err := r.Allow(t.Context(), "k")
		return err == nil && d.Degraded() && l.shard.Outage().Number != 0
	})
	for _, err := range []error{remote.ErrNoRoom, remote.ErrNoAnswer} {
		if got := decides(err); got != limit.TierFallback {
			t.Errorf("%v, with a silent Redis: %v decides", err, got)
		}
	}
}
