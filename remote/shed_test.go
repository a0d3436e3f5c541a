package remote

import (
	"context"
	"errors"
	"sync"
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
	awaitState(t, b, 0, 0)
	server.Pause()
	var wg sync.WaitGroup
	wg.Go(func() { mustDecide(t, b, Entry{Key: "a", Rule: rule, Cost: 1}) })
	awaitState(t, b, 1, 0)
	wg.Go(func() { mustDecide(t, b, Entry{Key: "b", Rule: rule, Cost: 1}) })
	awaitState(t, b, 1, 1)
	for _, test := range []struct {
		shed     int
		deadline time.Duration
		atLeast  time.Duration
	}{{0, time.Hour, 0}, {mostShed, time.Hour, shedPause}, {mostShed, time.Millisecond, time.Millisecond / 2}} {
		b.mu.Lock()
		b.shed = shed{test.shed, localTime() + time.Hour.Microseconds()}
		b.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), test.deadline)
		started := time.Now()
		_, err := b.Decide(ctx, Entry{Key: "c", Rule: rule, Cost: 1})
		_, groupErr := b.DecideAll(ctx, []Entry{{Key: "c", Rule: rule, Cost: 1}})
		took := time.Since(started)
		cancel()
		if !errors.Is(err, limit.ErrOverloaded) || err != groupErr || took < test.atLeast {
			t.Errorf("%+v: %v and %v after %v", test, err, groupErr, took)
		}
	}
	server.Resume()
	wg.Wait()
}
