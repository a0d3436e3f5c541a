package remote

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Law 7: deadlines and contexts end waiting calls also in a bubble of testing/synctest, where time begins long
// before this process started.
func TestLaw7WaitingCallsEndInABubble(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		b, _ := newBatcher(t, bubble.Client(t), deadline(time.Second))
		rule := newRule(t, limit.PerHour(10), limit.GCRA())
		b.mu.Lock()
		b.inFlight, b.slow = 1, true // a trip that does not end
		b.mu.Unlock()
		cancelled, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		began := time.Now()
		if _, err := b.Decide(cancelled, Entry{Key: "k", Rule: rule, Cost: 1}); !errors.Is(err, context.Canceled) || time.Since(began) > 200*time.Millisecond {
			t.Errorf("a cancelled call ends after %v: %v", time.Since(began), err)
		}
		began = time.Now()
		if _, err := b.Decide(t.Context(), Entry{Key: "k", Rule: rule, Cost: 1}); !errors.Is(err, ErrNoAnswer) || time.Since(began) > 1100*time.Millisecond {
			t.Errorf("a call with a second ends after %v: %v", time.Since(began), err)
		}
		b.mu.Lock()
		b.inFlight = 0
		b.mu.Unlock()
	})
}

// Law 7: a round of the reaper that took long, for example because the process stood still, is not followed by a
// pause in which calls miss their deadlines by much.
func TestLaw7ALongRoundIsNotFollowedByALongPause(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		b, _ := newBatcher(t, bubble.Client(t), deadline(time.Second))
		rule := newRule(t, limit.PerHour(10), limit.GCRA())
		const stood, left = 500 * time.Millisecond, 550 * time.Millisecond
		c := waiting(callOf(standsStill{context.Background(), stood}, Entry{Key: "k", Rule: rule, Cost: 1}), left.Microseconds())
		b.mu.Lock()
		b.queue.add(c)
		b.inFlight, b.slow = 1, true // a trip that does not end
		b.mu.Unlock()
		began := time.Now()
		b.reap()
		<-c.done
		if late := time.Since(began) - left; !errors.Is(c.err, ErrNoAnswer) || late > 50*time.Millisecond {
			t.Errorf("%v, %v after its deadline", c.err, late)
		}
		b.mu.Lock()
		b.inFlight = 0
		b.mu.Unlock()
	})
}

// standsStill is a context whose Err method takes as long as if the process stood still.
type standsStill struct {
	context.Context
	stood time.Duration
}

func (s standsStill) Err() error {
	time.Sleep(s.stood)
	return s.Context.Err()
}
