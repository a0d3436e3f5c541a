package remote

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

func TestSoManyAreShedAtOnce(t *testing.T) {
	var s shed
	for round := range int64(3) {
		now := 1_000_000 * (round + 1)
		for i := range mostShed {
			if err := s.one(now + int64(i)%shedWithin); err != errNoRoom {
				t.Fatalf("call %d of a round: %v", i, err)
			}
		}
		if err := s.one(now + shedWithin); err != errPause {
			t.Errorf("one more: %v", err)
		}
	}
}

// Whoever is shed is told the same, and no later than the deadline.
func TestPausesOfWhoIsShed(t *testing.T) {
	server := redistest.Start(t)
	b, _ := newBatcher(t, server.Client(t), func(o *Options) { o.InFlight, o.Queue = 1, 1 })
	rule := newRule(t, limit.PerHour(10), limit.GCRA())
	mustDecide(t, b, Entry{Key: "k", Rule: rule, Cost: 1})
	goOn := holdUp(t, b, server, rule, 1)
	for _, test := range []struct {
		shed     int
		deadline time.Duration
		atLeast  time.Duration
		under    time.Duration
	}{{0, time.Hour, 0, shedPause}, {mostShed, time.Hour, 2 * shedPause, time.Hour}, {mostShed, time.Millisecond, time.Millisecond / 2, shedPause}} {
		shortest := time.Hour // a busy machine may take longer once
		for range 10 {
			b.mu.Lock()
			b.shed = shed{test.shed, localTime() + time.Hour.Microseconds()}
			b.mu.Unlock()
			ctx, cancel := context.WithTimeout(t.Context(), test.deadline)
			started := time.Now()
			_, err := b.Decide(ctx, Entry{Key: "c", Rule: rule, Cost: 1})
			_, groupErr := b.DecideAll(ctx, []Entry{{Key: "c", Rule: rule, Cost: 1}})
			shortest = min(shortest, time.Since(started))
			cancel()
			if !errors.Is(err, limit.ErrOverloaded) || err != groupErr {
				t.Errorf("%+v: %v and %v", test, err, groupErr)
			}
		}
		if shortest < test.atLeast || shortest >= test.under {
			t.Errorf("%+v: %v for two calls", test, shortest)
		}
	}
	goOn()
}
