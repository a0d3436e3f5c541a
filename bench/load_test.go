package main

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// answers returns a subject whose instances all answer with the same function.
func answers(instances int, d decide) *subject {
	s := overRedis(d, nil)
	for len(s.decides) < instances {
		s.decides = append(s.decides, d)
	}
	return s
}

func TestCallersAreSpreadOverInstances(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var called sync.WaitGroup
	s := answers(0, nil)
	s.decides = nil
	for range 3 {
		called.Add(1)
		first := sync.OnceFunc(called.Done)
		s.decides = append(s.decides, func(context.Context, string) (outcome, error) {
			first()
			runtime.Gosched()
			return allowed, nil
		})
	}
	go func() {
		called.Wait()
		cancel()
	}()
	w := hotKey("run")
	if _, err := drive(ctx, s, &w, 6, time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(ctx.Err(), context.Canceled) {
		t.Error("not every instance was called")
	}
}

// Calls are offered at their rate even if no answer comes for longer than the whole span. Each outcome is counted
// separately.
func TestOfferDoesNotWaitForAnswers(t *testing.T) {
	var mu sync.Mutex
	n := 0
	answer := func(ctx context.Context, _ string) (outcome, error) {
		mu.Lock()
		n++
		turn := n % 5
		mu.Unlock()
		switch turn {
		case 0:
			return failed, nil
		case 1:
			return degraded, nil
		case 2:
			return failed, errors.New("oops")
		case 3:
			<-ctx.Done()
			return failed, ctx.Err()
		}
		return allowed, nil
	}
	w := hotKey("run")
	o := offer(t.Context(), answers(1, answer), &w, 10, 10_000, 30*time.Millisecond)
	for try := 1; try < 5 && o.made > 200*time.Millisecond; try++ { // the machine stood still
		o = offer(t.Context(), answers(1, answer), &w, 10, 10_000, 30*time.Millisecond)
	}
	if o.calls() != 300 {
		t.Errorf("%d calls were made, want 300", o.calls())
	}
	if o.made > 200*time.Millisecond { // 6 of each caller's 30 calls take 50 ms
		t.Errorf("making 30 ms of calls took %v", o.made)
	}
	if o.decided.total != 60 || o.degraded.total != 60 || o.undecided.total != 180 || o.failed != 60 {
		t.Errorf("of 300: %d decided, %d degraded, %d undecided, of these %d failed", o.decided.total, o.degraded.total, o.undecided.total, o.failed)
	}
	if all := o.all(); all.total != 300 || all.percentile(99) < float64(deadline)*0.98 || all.percentile(30) > float64(deadline)/2 {
		t.Errorf("of %d calls in all, the slowest took %v", all.total, time.Duration(all.percentile(99)))
	}
	if slowest := o.undecided.percentile(99); slowest < float64(deadline)*0.98 {
		t.Errorf("who waited for the deadline knew after %v", time.Duration(slowest))
	}
}

// A limiter that grants too much or too little fails and does not appear in a table.
func TestMemoryFindsAWrongLimiter(t *testing.T) {
	for grants, right := range map[int64]bool{999: false, 1000: true, 1003: false} {
		var calls atomic.Int64
		s := answers(1, func(context.Context, string) (outcome, error) {
			return verdict(calls.Add(1) <= grants), nil
		})
		w := usedUp("run", 0)
		if err := grantAll(t.Context(), s, &w, func() error { return nil }); (err == nil) != right {
			t.Errorf("granting %d of 1,000: %v", grants, err)
		}
	}
}

// A measurement may last a minute, and its warm-up comes before it. Callers' deadlines do not end it.
func TestLongMeasurementsAreNotCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := answers(1, func(ctx context.Context, _ string) (outcome, error) {
			time.Sleep(time.Second)
			if err := ctx.Err(); err != nil {
				return failed, err
			}
			return allowed, nil
		})
		w, begin := hotKey("run"), time.Now().Add(time.Second)
		const most = 60 * time.Second
		o := order{Callers: 1, Begin: begin.UnixMicro(), From: begin.Add(most / 5).UnixMicro(), Until: begin.Add(most/5 + most).UnixMicro()}
		if r := o.drive(t.Context(), s, &w); r.FirstErr != "" || r.Calls[failed] > 0 {
			t.Errorf("%v calls, %s", r.Calls, r.FirstErr)
		}
	})
}
