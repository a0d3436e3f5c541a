package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

const ms = 1000 // µs

// Law 7: time-outs count as failures of Redis, with three exceptions: they are noticed so late that this process must
// have been paused, or a little late while Redis answers other trips, or Redis does so and the trip had less time.
func TestTimeoutsThatAreNotRediss(t *testing.T) {
	b := &Batcher{opt: Options{Deadline: 50 * time.Millisecond}}
	other := errors.New("refused")
	for _, c := range []struct {
		err        error
		took       int64
		lastAnswer time.Duration // time since it
		blamed     bool
	}{
		{ErrNoAnswer, 50 * ms, time.Hour, true},
		{ErrNoAnswer, 51 * ms, 0, true},
		{ErrNoAnswer, 60 * ms, 0, false},
		{ErrNoAnswer, 60 * ms, time.Hour, true},
		{ErrNoAnswer, 80 * ms, time.Hour, false},
		{fmt.Errorf("%w: %w", ErrNoAnswer, &net.OpError{Op: "write", Err: os.ErrDeadlineExceeded}), 50 * ms, 0, false},
		{fmt.Errorf("%w: %w", ErrNoAnswer, &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}), 50 * ms, 0, true},
		{other, 80 * ms, 0, true},
		{context.DeadlineExceeded, 80 * ms, 0, true},
	} {
		b.lastAnswer.Store(localTime() - c.lastAnswer.Microseconds())
		if got := b.failureOfRedis(c.err, c.took, b.opt.Deadline); (got != nil) != c.blamed {
			t.Errorf("%v after %d µs, an answer %v ago: %v", c.err, c.took, c.lastAnswer, got)
		}
	}
	for _, c := range []struct {
		err        error
		within     time.Duration
		took       int64
		lastAnswer time.Duration // time since it
		blamed     bool
	}{
		{ErrNoAnswer, 25 * time.Millisecond, 25 * ms, 49 * time.Millisecond, false},
		{ErrNoAnswer, 43 * time.Millisecond, 43 * ms, 49 * time.Millisecond, false},
		{ErrNoAnswer, 44 * time.Millisecond, 44 * ms, 49 * time.Millisecond, true},
		{ErrNoAnswer, 50 * time.Millisecond, ms, 49 * time.Millisecond, true}, // the client does not wait as long
		{ErrNoAnswer, 25 * time.Millisecond, 25 * ms, 50 * time.Millisecond, true},
		{ErrNoAnswer, 25 * time.Millisecond, 51 * ms, time.Hour, false}, // noticed late
		{other, 25 * time.Millisecond, 25 * ms, 0, true},
	} {
		b.lastAnswer.Store(localTime() - c.lastAnswer.Microseconds())
		if got := b.failureOfRedis(c.err, c.took, c.within); (got != nil) != c.blamed {
			t.Errorf("%v after %d of %v, an answer %v ago: %v", c.err, c.took, c.within, c.lastAnswer, got)
		}
	}
}

// A trip that ended tells the next ones what it carried and whether Redis failed, and the breaker and the metrics of a
// failure. That a node does not decide a slot is no failure of Redis, since it has answered. A time-out of a trip that had
// little time is none either if Redis answers others, but the metrics count it.
func TestWhatATripTells(t *testing.T) {
	for _, c := range []struct {
		err             error
		failed, counted bool
		others          bool  // Redis answers other trips
		left            int64 // ms left of the time that the trip had
	}{
		{err: nil}, {err: ErrNoAnswer, failed: true, counted: true},
		{err: ErrNoAnswer, counted: true, others: true, left: 871}, {err: ErrNoAnswer, failed: true, counted: true, others: true, left: 873},
		{err: refusal("LOADING"), failed: true, counted: true}, {err: refusal("LOADING"), failed: true, counted: true, others: true},
		{err: refusal("CLUSTERDOWN Hash slot not served")}, {err: refusal("TRYAGAIN")}, {err: errRedirectLoop},
	} {
		const took = 3 * ms
		hooked, told := errors.New("nothing"), errors.New("nothing")
		b := NewBatcher(nil, Options{Deadline: time.Second}, Hooks{Trip: func(callers int, of time.Duration, err error) {
			if hooked = err; callers != 2 || of != microseconds(took) {
				t.Errorf("a trip with %d callers took %v", callers, of)
			}
		}})
		one := &trip{calls: make([]*call, 2), cargo: cargo{calls: 2, unmerged: 4, sent: 3}, flight: flight{done: func(err error) { told = err }}}
		now := localTime()
		one.ends = now + c.left*ms
		if b.lastAnswer.Store(now - time.Minute.Microseconds()); c.others {
			b.lastAnswer.Store(now)
		}
		b.tripEnded(one, now, took, took, c.err)
		if b.failed != c.failed || (hooked != nil) != c.counted || (told != nil) != c.failed || b.last != one.cargo {
			t.Errorf("%v: failed: %v, the breaker was told of %v, the metrics of %v; the last trip: %+v", c.err, b.failed, told, hooked, b.last)
		}
		b.Close()
	}
}

// If no trip may be made now, the waiting calls end with the reason, and later calls make trips as before.
func TestATripThatMayNotBegin(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		refused, took := errors.New("refused"), time.Duration(-1)
		var begins error
		opt := Options{Deadline: time.Second, MaxBatch: 128, MaxWork: 100_000, InFlight: 1, Queue: 10}
		b := NewBatcher(NewScript(bubble.Client(t)), opt, Hooks{
			Begin: func() (func(error), error) { return func(error) {}, begins },
			Trip:  func(_ int, of time.Duration, _ error) { took = of },
		})
		rule := newRule(t, limit.PerHour(10), limit.GCRA())
		mustDecide(t, b, Entry{Key: "k", Rule: rule, Cost: 1})
		for range 3 {
			begins, took = refused, -1
			if _, err := b.Decide(t.Context(), Entry{Key: "k", Rule: rule, Cost: 1}); err != refused || took != -1 {
				t.Errorf("it ends with %v, and a trip took %v", err, took)
			}
			awaitState(t, b, 0, 0)
			if len(b.trips) != 0 {
				t.Error("the trip is in flight")
			}
			begins = nil
			bubble.Late.Store(int64(10 * time.Millisecond))
			if mustDecide(t, b, Entry{Key: "k", Rule: rule, Cost: 1}); took < 10*time.Millisecond || took > opt.Deadline {
				t.Errorf("a trip to a Redis that takes 10 ms took %v", took)
			}
			awaitState(t, b, 0, 0)
		}
		b.Close()
	})
}

// Law 3: if only some of a call's independent entries have expired, these fail alone. If the call were sent once
// more because of them, the others would be charged twice.
func TestLaw3EntriesThatExpireAloneFailAlone(t *testing.T) {
	rule := newRule(t, limit.PerHour(10), limit.GCRA())
	for _, tc := range []struct {
		group int // of the entries; 0: they are independent
		own   []Status
		want  error
	}{
		{0, []Status{Allowed, Expired}, nil},
		{0, []Status{Expired, Denied}, nil},
		{0, []Status{Expired, Expired}, errLate},
		{1, []Status{HeldBack, Expired}, errLate},
	} {
		entries := []Entry{{Key: "a", Rule: rule, Cost: 1, Group: tc.group}, {Key: "b", Rule: rule, Cost: 1, Group: tc.group}}
		c := new(callPool).group(t.Context(), entries)
		own := []Reply{{Status: tc.own[0]}, {Status: tc.own[1]}}
		if err := c.failure(own); err != tc.want {
			t.Errorf("%+v: the call fails with %v", tc, err)
		}
		for i, r := range own {
			if failed := r.Err == errLate; tc.group == 0 && failed != (r.Status == Expired) {
				t.Errorf("%+v: entry %d fails with %v", tc, i, r.Err)
			}
		}
	}
}

// mustEndWithClose fails the test unless a call has ended because its limiter is closed.
func mustEndWithClose(t *testing.T, c *call) {
	t.Helper()
	select {
	case <-c.done:
		if c.err != limit.ErrClosed {
			t.Error(c.err)
		}
	default:
		t.Error("nobody answers the call")
	}
}

// A call that expired by a wrong estimate of the clock is not sent once more after Close has begun: nobody would answer it.
func TestLaw12CallsToBeResentEndWithClose(t *testing.T) {
	b, _ := newBatcher(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})) // never contacted
	c := waitingCall(newRule(t, limit.PerHour(10), limit.GCRA()), time.Hour.Microseconds())
	c.claim()
	b.Close()
	b.requeue([]*call{c})
	mustEndWithClose(t, c)
}

// Close ends the calls that wait for a trip at once.
func TestLaw12CallsThatWaitForATripEndWithClose(t *testing.T) {
	b, _ := newBatcher(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})) // never contacted
	c := waitingCall(newRule(t, limit.PerHour(10), limit.GCRA()), time.Hour.Microseconds())
	b.mu.Lock()
	b.queue.add(c)
	b.mu.Unlock()
	b.Close()
	mustEndWithClose(t, c)
}
