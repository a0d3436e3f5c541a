//go:build unix

package tiered

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Law 7: callers that are denied from memory give others their turn if a call waits for Redis. On one processor, a
// goroutine that always yields gets a turn each time that such a caller yields. Otherwise it gets one after each time
// slice of 10 ms, in which thousands of calls are denied.
func TestLaw7CallersDeniedInMemoryYield(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		l := newLimiterOn(t, bubble.Client(t), redistest.Prefix())
		r := newRule(t, l, "r", limit.PerHour(1))
		mustAllow(t, r, "k", 1)
		if d := mustAllow(t, r, "k", 1); d.Allowed || d.Tier != limit.TierRedis {
			t.Fatalf("%+v", d)
		}
		bubble.Late.Store(int64(time.Second)) // does not pass before all goroutines wait
		var others sync.WaitGroup
		others.Go(func() { mustAllow(t, r, "other", 1) })
		redistest.Eventually(t, "a call waits for Redis", l.shards.HasWaiters)
		turns := 0
		var stop atomic.Bool
		others.Go(func() {
			for ; !stop.Load(); turns++ {
				runtime.Gosched()
			}
		})
		const calls = 200 * yieldEvery
		for range calls {
			if d := mustAllow(t, r, "k", 1); d.Tier != limit.TierLocal {
				t.Fatalf("%+v", d)
			}
		}
		stop.Store(true)
		others.Wait()
		if turns < calls/yieldEvery/2 {
			t.Errorf("others had %d turns in %d calls, want one in about %d", turns, calls, yieldEvery)
		}
	})
}

// Law 7: callers that are denied from memory and ask again at once do not keep the processors from callers that
// wait for Redis. If they did not yield, each trip would take as long as the time slices of all other goroutines,
// and one call in ten would miss its deadline.
func TestLaw7DeniedCallersDoNotDelayTrips(t *testing.T) {
	const callers, attempts, enough = 64, 5, 0.5
	for attempt := 1; ; attempt++ {
		began, before := time.Now(), processorTime(t)
		decided := deniedCallersAskAgain(t, callers)
		got := float64(processorTime(t)-before) / float64(time.Since(began)) / float64(runtime.GOMAXPROCS(0))
		inMemory, byRedis := decided[limit.TierLocal].Load(), decided[limit.TierRedis].Load()
		missed := decided[limit.TierOverload].Load() + decided[limit.TierFallback].Load()
		if inMemory >= 100*callers && missed <= byRedis/50 {
			return
		}
		t.Logf("%d of %d that asked Redis missed it, want none, or a few if the machine paused; %d were denied in memory; this process had %.2f of the processors",
			missed, missed+byRedis, inMemory, got)
		switch {
		case got > enough && (missed > byRedis/10 || attempt == attempts): // a pause of the machine makes a few miss
			t.FailNow()
		case attempt == attempts: // other processes used the processors each time; see the test above
			return
		}
	}
}

// processorTime returns the processor time that this process has used.
func processorTime(t *testing.T) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// deniedCallersAskAgain makes callers ask about keys without a pause, so that most calls are denied from memory.
// It returns how often each tier has decided.
func deniedCallersAskAgain(t *testing.T, callers int) *[tiers]atomic.Int64 {
	l := newLimiterOn(t, redistest.Start(t).Client(t), redistest.Prefix(), Deadline(50*time.Millisecond), RememberDenials(100_000))
	r := newRule(t, l, "r", limit.PerMinute(100).WithBurst(10), Use(limit.GCRA())) // 10 units of each key are free at once
	const keys, span = 1000, 3 * time.Second
	var all sync.WaitGroup
	decided := new([tiers]atomic.Int64)
	var stop atomic.Bool
	for i := range callers {
		all.Go(func() {
			for n := i; !stop.Load(); n += 7919 { // nothing in this loop may yield
				d, err := r.Allow(context.Background(), "k"+strconv.Itoa(n%keys))
				if err != nil {
					t.Error(err)
					return
				}
				decided[d.Tier].Add(1)
			}
		})
	}
	time.Sleep(span)
	stop.Store(true)
	all.Wait()
	_ = l.Close()
	return decided
}

// Law 6: while Redis does not know of all grants, most callers that this instance's share denies, and that ask
// again at once, are answered only at the end of their time.
func TestLaw6CallersDeniedByShareDoNotSpin(t *testing.T) {
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t), redistest.Prefix(), Deadline(5*time.Second), RememberDenials(0))
	r, other := newRule(t, l, "r", limit.PerHour(10)), another(t, l)
	other(true)
	redistest.Eventually(t, "there are two", func() bool { return l.FleetSize() == 2 })
	server.Pause()
	l.shard.Breaker.ForceOpen(errors.New("lost"))
	mustAllow(t, r, "k", 5) // the whole share of this instance
	server.Resume()
	redistest.Eventually(t, "Redis is back", func() bool { return l.State() == Settling })

	ctx, cancel := context.WithCancel(t.Context())
	const callers = 20_000
	var denied, told atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for i := range callers {
		all.Go(func() {
			var ds []limit.Decision
			d, err := limit.Decision{}, error(nil)
			if i%2 == 0 {
				d, err = r.Allow(ctx, "k")
			} else if ds, err = l.AllowAll(ctx, Request{Rule: r, Key: "k", Cost: 1}); err == nil {
				d = ds[0]
			}
			if err == nil && !d.Allowed && d.Degraded() {
				denied.Add(1)
			}
			told.Add(1)
		})
	}
	redistest.Eventually(t, "some are denied", func() bool { return told.Load() >= 500 })
	if n, most := told.Load(), 600+100*(time.Since(began).Milliseconds()+1); n > most {
		t.Errorf("%d were denied within %v, want %d at most", n, time.Since(began), most)
	}
	cancel()
	all.Wait()
	if n := denied.Load(); n < 500 {
		t.Errorf("%d were denied by their share", n)
	}
}
