package tiered

import (
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Law 7: a release waits for Redis no longer than a third of the slots' TTL, even if the limiter's deadline is longer.
func TestLaw7AReleaseWaitsForAThirdOfTheTTL(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		l := newLimiterOn(t, bubble.Client(t), redistest.Prefix(), Deadline(time.Second), FleetSize(1))
		slot := mustAcquire(t, newRule(t, l, "r", limit.Concurrent(4), SlotTTL(300*time.Millisecond)), "k", 1)
		bubble.Late.Store(int64(10 * time.Second))
		began := time.Now()
		slot.Release()
		if took := time.Since(began); took != 100*time.Millisecond {
			t.Errorf("a release without an answer took %v, want 100ms", took)
		}
		bubble.Late.Store(0)
	})
}

// Law 13: if Redis knows of fewer units than a release gives back, it has lost data. It is told at once what the process still
// holds, long before the next renewal, and without a heartbeat that notices the loss.
func TestLaw13AReleaseThatFindsALossReportsWhatIsHeld(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		client, prefix := bubble.Client(t), redistest.Prefix()
		start := func() *Rule {
			l := newLimiterOn(t, bubble.Client(t), prefix, Deadline(time.Second), FleetSize(2))
			return newRule(t, l, "jobs", limit.Concurrent(4), SlotTTL(10*time.Minute), DenialLife(0))
		}
		r, other := start(), start()
		released, kept := mustAcquire(t, r, "k", 1), mustAcquire(t, r, "k", 2)
		defer kept.Release()
		if deleted := client.Del(t.Context(), prefix+":{k}:jobs:slots").Val(); deleted != 1 {
			t.Fatalf("%d keys deleted", deleted)
		}
		began := time.Now()
		released.Release()
		redistest.Eventually(t, "Redis knows what is held", func() bool { return mustPeek(t, other, "k").Remaining == 2 })
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("Redis was told after %v", took)
		}
	})
}
