package remote

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Law 7: a call that was given less time than the deadline ends after that time. The trip that it started goes on
// until the deadline. So the trip does not count as failed, and its other calls are answered.
func TestLaw7LittleTimeShortensNoTrip(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		const deadline, slow, little = 3 * time.Second, 2 * time.Second, 1600 * time.Millisecond
		b, trips := newBatcher(t, bubble.Client(t), func(o *Options) { o.Deadline, o.Inline = deadline, true })
		rule := newRule(t, limit.PerHour(1000), limit.SlidingLog())
		mustDecide(t, b, Entry{Key: "k", Rule: rule, Cost: 1})
		bubble.Late.Store(int64(slow))

		began := time.Now()
		_, err := b.Decide(DecideBy(t.Context(), began.Add(little)), Entry{Key: "k", Rule: rule, Cost: 1})
		if took := time.Since(began); !errors.Is(err, ErrDecideBy) || !errors.Is(err, ErrNoAnswer) || IsCallers(err) || took != little {
			t.Errorf("%v after %v", err, took)
		}
		if !MayHaveRun(err) {
			t.Errorf("%v: it was sent", err)
		}
		_, err = b.Decide(DecideBy(t.Context(), time.Now().Add(little/16)), Entry{Key: "k", Rule: rule, Cost: 1})
		if !errors.Is(err, ErrDecideBy) || MayHaveRun(err) {
			t.Errorf("%v: it was not sent, as a trip was under way", err)
		}
		redistest.Eventually(t, "the trip ends", func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.inFlight == 0
		})
		bubble.Late.Store(0)
		if r := mustDecide(t, b, Entry{Key: "k", Rule: rule, Cost: 1}); r.Remaining != 1000-3 {
			t.Errorf("%d remain of 1000, and three were charged", r.Remaining)
		}
		if n := trips.failures(); n != 0 {
			t.Errorf("%d trips failed", n)
		}
	})
}

// If little or no time is left, Redis is not asked.
func TestRedisIsNotAskedIfHardlyAnyTimeIsLeft(t *testing.T) {
	b, trips := newBatcher(t, redistest.Shared(t).Client(t))
	rule := newRule(t, limit.PerHour(1000), limit.SlidingLog())
	for _, left := range []time.Duration{leastTime / 2, 0, -time.Hour} {
		_, err := b.Decide(DecideBy(t.Context(), time.Now().Add(left)), Entry{Key: "k", Rule: rule, Cost: 1})
		if !errors.Is(err, ErrDecideBy) || MayHaveRun(err) {
			t.Errorf("%v left: %v", left, err)
		}
	}
	if sizes, _ := trips.trips(); len(sizes) != 0 {
		t.Errorf("trips of %d", sizes)
	}
}

// If DecideBy was given several times, the earliest applies, but no later than the deadline.
func TestTheEarliestTimeCounts(t *testing.T) {
	ctx := DecideBy(DecideBy(t.Context(), time.Now().Add(time.Minute)), time.Now().Add(time.Hour))
	ctx, cancel := context.WithCancel(ctx) // stands for any context derived from it
	defer cancel()
	if left := TimeLeft(ctx, 24*time.Hour); left > time.Minute || left < 30*time.Second {
		t.Errorf("%v left, want a minute", left)
	}
	if left := TimeLeft(ctx, time.Second); left != time.Second {
		t.Errorf("%v left, want the deadline", left)
	}
	if left := TimeLeft(WithoutDecideBy(ctx), 24*time.Hour); left != 24*time.Hour {
		t.Errorf("%v left without it", left)
	}
	for _, over := range []time.Time{time.Now().Add(-time.Second), {}} {
		if left := TimeLeft(DecideBy(WithoutDecideBy(ctx), over), time.Hour); left > 0 {
			t.Errorf("%v left of a time that is over", left)
		}
	}
}

// A step before the entry is sent ends with ErrDecideBy only if the time that is over was the program's.
func TestTheRestOfTheDeadlineIsNotTheProgramsTime(t *testing.T) {
	over := time.Now().Add(-time.Second)
	if err := LateBy(DecideBy(t.Context(), over), ErrInDoubt); !errors.Is(err, ErrDecideBy) || MayHaveRun(err) {
		t.Errorf("the program's time: %v", err)
	}
	if err := LateBy(Rest(DecideBy(t.Context(), over), time.Now().Add(time.Minute)), ErrInDoubt); !errors.Is(err, ErrDecideBy) {
		t.Errorf("the program's time, which ends before the rest: %v", err)
	}
	if err := LateBy(DecideBy(t.Context(), time.Now().Add(time.Minute)), ErrInDoubt); err != ErrInDoubt {
		t.Errorf("the program's time, which is not over: %v", err)
	}
	if err := LateBy(Rest(t.Context(), over), ErrInDoubt); err != ErrInDoubt {
		t.Errorf("the rest of the limiter's: %v", err)
	}
}
