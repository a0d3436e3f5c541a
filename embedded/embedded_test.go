// The stand-in for Redis needs a 64-bit platform.

//go:build !(386 || arm || mips || mipsle)

package embedded_test

import (
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlimit/tierlimit/embedded"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// One process enforces limits exactly, however many callers there are at once, and is never in an
// outage.
func TestLimitsAreExact(t *testing.T) {
	limiter, err := embedded.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close()
	for _, algorithm := range []limit.Algorithm{limit.SlidingLog(), limit.SlidingCounter(16, limit.Strict), limit.GCRA(), limit.FixedWindow()} {
		rule := limiter.MustRule(algorithm.Name(), limit.PerDay(100), tiered.Use(algorithm))
		var granted atomic.Int64
		var callers sync.WaitGroup
		for range 16 {
			callers.Go(func() {
				for range 10 {
					d, err := rule.Allow(t.Context(), "k")
					if err != nil || d.Degraded() {
						t.Errorf("%+v, %v", d, err)
					}
					if d.Allowed {
						granted.Add(1)
					}
				}
			})
		}
		callers.Wait()
		if granted.Load() != 100 {
			t.Errorf("%v: %d granted of 100", algorithm, granted.Load())
		}
	}
	if limiter.State() != tiered.Healthy {
		t.Errorf("the state is %v", limiter.State())
	}
}

// When Release returns, the units are free, although the deadline is as long as the life of a slot.
func TestSlotsAreFreeOnceTheyAreReleased(t *testing.T) {
	limiter, err := embedded.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close()
	jobs := limiter.MustRule("jobs", limit.Concurrent(2))
	for range 20 {
		slot, d, err := jobs.Acquire(t.Context(), "k", 1)
		if slot == nil || d.Remaining != 1 {
			t.Fatalf("%+v, %v", d, err)
		}
		slot.Release()
		if d, err := jobs.Peek(t.Context(), "k", 2); !d.Allowed {
			t.Fatalf("after its release: %+v, %v", d, err)
		}
	}
}

// Law 12: Close leaves nothing behind, not even the stand-in.
func TestLaw12CloseLeavesNothingBehind(t *testing.T) {
	ours := func() (n int, stacks string) {
		buffer := make([]byte, 1<<20)
		stacks = string(buffer[:runtime.Stack(buffer, true)])
		for stack := range strings.SplitSeq(stacks, "\n\n") {
			if strings.Contains(stack, "miniredis") || strings.Contains(stack, "standin") || strings.Contains(stack, "tiered.") {
				n++
			}
		}
		return n, stacks
	}
	before, _ := ours()
	for range 3 {
		limiter, err := embedded.Open()
		if err != nil {
			t.Fatal(err)
		}
		if d, err := limiter.MustRule("r", limit.PerHour(1)).Allow(t.Context(), "k"); err != nil || !d.Allowed {
			t.Errorf("%+v, %v: limiters share something", d, err)
		}
		if err := limiter.Close(); err != nil {
			t.Error(err)
		}
	}
	var stacks string
	defer func() {
		if t.Failed() {
			t.Logf("left behind:\n%s", stacks)
		}
	}()
	redistest.Eventually(t, "no goroutine is left", func() bool {
		var n int
		n, stacks = ours()
		return n <= before
	})
}

// A limiter can be used in a bubble of testing/synctest. Everything, including waiting, then follows
// the bubble's clock. Close leaves no goroutine; otherwise the bubble would panic.
func TestLaw12InABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := embedded.Open(tiered.LedgerKeys(100), tiered.RememberDenials(100))
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		rule := limiter.MustRule("rate", limit.PerMinute(1))
		for i := range 3 {
			if d, err := rule.Wait(t.Context(), "k", 1); err != nil || !d.Allowed || d.Degraded() {
				t.Errorf("%+v, %v", d, err)
			}
			if waited, want := time.Since(began), time.Duration(i)*time.Minute; waited < want || waited > want+time.Millisecond {
				t.Errorf("grant %d after %v, want it after %v", i, waited, want)
			}
		}
		slots := limiter.MustRule("slots", limit.Concurrent(1))
		first, _, err := slots.Acquire(t.Context(), "k", 1)
		if err != nil || first == nil {
			t.Fatal(first, err)
		}
		time.AfterFunc(time.Minute, first.Release)
		began = time.Now()
		second, err := slots.AcquireWait(t.Context(), "k", 1)
		if err != nil || time.Since(began) < time.Minute || time.Since(began) > time.Minute+time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		second.Release()
		if err := limiter.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Limiters of different bubbles, and limiters outside of bubbles, do not use one another's channels.
func TestBubblesShareNothing(t *testing.T) {
	use := func(t *testing.T) {
		limiter, err := embedded.Open(tiered.LedgerKeys(100), tiered.RememberDenials(100))
		if err != nil {
			t.Fatal(err)
		}
		defer limiter.Close()
		one, two := limiter.MustRule("one", limit.PerMinute(5)), limiter.MustRule("two", limit.Concurrent(5))
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				if _, err := one.Allow(t.Context(), "k"); err != nil {
					t.Error(err)
				}
				grants, _, err := limiter.TakeAll(t.Context(), tiered.Request{Rule: one, Key: "g", Cost: 1}, tiered.Request{Rule: two, Key: "g", Cost: 1})
				if err != nil {
					t.Error(err)
				}
				_ = grants.End(t.Context())
			})
		}
		callers.Wait()
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection would empty the pools
	for range 3 {
		synctest.Test(t, use)
		use(t)
	}
}
