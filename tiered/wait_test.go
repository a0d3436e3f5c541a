package tiered

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local"
	"github.com/tierlimit/tierlimit/remote"
)

// waiting returns the number of calls of Wait in a key's queues.
func waiting(l *Limiter, rule, key string) int {
	l.lines.mu.Lock()
	defer l.lines.mu.Unlock()
	n := 0
	for _, q := range l.lines.byKey[local.HeldKey{Rule: rule, Key: key}] {
		n += q.waiters.Len()
	}
	return n
}

// Waiters are served in the order in which they came, whatever their costs.
func TestWaitersAreServedInOrder(t *testing.T) {
	t.Parallel()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	for _, a := range []limit.Algorithm{limit.SlidingLog(), limit.GCRA()} {
		r := newRule(t, l, "r"+a.String(), limit.Per(4, 200*time.Millisecond).WithBurst(4), Use(a))
		costs := []int64{4, 1, 1, 2, 3, 1, 4, 1, 1, 1}
		charged := make([]int64, len(costs)) // on Redis's clock
		var served atomic.Int64
		var all sync.WaitGroup
		mustAllow(t, r, "k", 4)
		for i, cost := range costs {
			all.Go(func() {
				d, err := r.Wait(t.Context(), "k", cost)
				if charged[i] = d.ChargedAt; err != nil || !d.Allowed || d.Granted != cost || d.ChargedAt == 0 {
					t.Errorf("%v, waiter %d: %+v, %v", a, i, d, err)
				}
				served.Add(1)
			})
			redistest.Eventually(t, "it waits, or has been served", func() bool {
				return waiting(l, r.name, "k")+int(served.Load()) == i+1
			})
		}
		all.Wait()
		if !slices.IsSorted(charged) { // waiters that one answer serves have the same time
			t.Errorf("%v: served at %v", a, charged)
		}
		if n := len(l.lines.byKey); n != 0 {
			t.Errorf("%d lines are left", n)
		}
	}
}

// However many callers wait, Redis is asked once per release. The test runs in a bubble, where calls take no
// time, and time passes only when all goroutines wait. On a slow machine, units would come back in pieces, each
// of which is a release.
func TestWaitersAskOncePerRelease(t *testing.T) {
	for name, c := range map[string]struct {
		algorithm limit.Algorithm
		limit     limit.Limit
		capacity  int64
		releases  uint64
	}{
		"GCRA, which releases one unit at a time": {limit.GCRA(), limit.Per(1000, 5*time.Second).WithBurst(900), 900, 1000},
		"a log, which releases those of a trip":   {limit.SlidingLog(), limit.Per(50, 50*time.Millisecond), 50, 20},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
				l := newLimiterOn(t, bubble.Client(t), redistest.Prefix())
				r := newRule(t, l, "r", c.limit, Use(c.algorithm))
				const waiters = 1000
				mustAllow(t, r, "k", c.capacity)
				var all sync.WaitGroup
				for range waiters {
					all.Go(func() {
						if d, err := r.Wait(t.Context(), "k", 1); err != nil || !d.Allowed {
							t.Errorf("%+v, %v", d, err)
						}
					})
				}
				synctest.Wait()
				before := tripsOf(l)
				all.Wait()
				// Trips for the fleet are not counted.
				if trips := tripsOf(l) - before; trips != c.releases {
					t.Errorf("%d trips for %d releases", trips, c.releases)
				}
			})
		})
	}
}

// Law 6: 20,000 callers can wait for one key without an error. They are served in the order in which they came,
// and Redis is asked about once per release.
func TestLaw6TwentyThousandWaiters(t *testing.T) { // not in parallel: the callers would delay other tests
	waiters, blocks := 20_000, 10
	if raceDetector { // the race detector supports 8,128 goroutines
		waiters = 5_000
	}
	client := redistest.Start(t).Client(t)
	l := newLimiterOn(t, client, redistest.Prefix())
	const releases = 4
	r := newRule(t, l, "r", limit.Per(int64(waiters/releases), time.Second), Use(limit.SlidingLog()))
	before := redistest.DecisionCalls(t, client)
	mustAllow(t, r, "k", r.limit.Quota())
	charged := make([]atomic.Int64, waiters) // on Redis's clock
	var served atomic.Int64
	var all sync.WaitGroup
	for block := range blocks {
		for i := block * waiters / blocks; i < (block+1)*waiters/blocks; i++ {
			all.Go(func() {
				d, err := r.Wait(t.Context(), "k", 1)
				if err != nil || !d.Allowed || d.Tier != limit.TierRedis {
					t.Errorf("waiter %d: %+v, %v", i, d, err)
				}
				charged[i].Store(d.ChargedAt)
				served.Add(1)
			})
		}
		redistest.Eventually(t, "they wait, or have been served", func() bool {
			return waiting(l, r.name, "k")+int(served.Load()) >= (block+1)*waiters/blocks
		})
	}
	all.Wait()
	last := int64(0) // the newest time in the blocks before
	for block := range blocks {
		newest := last
		for i := block * waiters / blocks; i < (block+1)*waiters/blocks; i++ {
			at := charged[i].Load()
			if at < last {
				t.Fatalf("waiter %d was served at %d, and one of a block before it at %d", i, at, last)
			}
			newest = max(newest, at)
		}
		last = newest
	}
	n := redistest.DecisionCalls(t, client) - before
	t.Logf("%d waiters, %d releases: %d calls of the script", waiters, releases, n)
	// On a slow machine, units come back in pieces. The count may also include the fleet's calls, one a second.
	if n > 10*releases+60 {
		t.Errorf("Redis was asked %d times for %d releases", n, releases)
	}
}

// Callers that cannot be served in time get an error at once, even those far behind in the queue. Their
// RetryAfter is not too long.
func TestWaitersWhoCannotBeServedInTime(t *testing.T) {
	t.Parallel()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), Deadline(5*time.Second))
	for _, a := range []limit.Algorithm{limit.GCRA(), limit.SlidingLog()} {
		r := newRule(t, l, "r"+a.String(), limit.Per(2, time.Minute), Use(a))
		mustAllow(t, r, "k", 1)
		mustAllow(t, r, "k", 1)
		patient, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i := range 5 {
			all.Go(func() {
				if _, err := r.Wait(patient, "k", 1); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
			redistest.Eventually(t, "it waits", func() bool { return waiting(l, r.name, "k") == i+1 })
		}
		// Under GCRA, the first unit is free in half a minute, and five more two and a half minutes later. Under
		// a log, the times are one minute and two minutes. The sum is three minutes in both cases, minus the time
		// that this test has taken.
		hurried, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		started := time.Now()
		d, err := r.Wait(hurried, "k", 1)
		cancel()
		if !errors.Is(err, limit.ErrWouldExceedDeadline) || time.Since(started) > 10*time.Second {
			t.Errorf("%v, %v", err, time.Since(started))
		}
		if d.Allowed || d.RetryAfter < 2*time.Minute || d.RetryAfter > 3*time.Minute {
			t.Errorf("%+v", d)
		}
		stop()
		all.Wait()
	}
}

// Waiters are served at once when units are given back in this process. They do not wait for callers that have
// left the queue.
func TestWaitersLearnOfReleases(t *testing.T) {
	t.Parallel()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), Deadline(5*time.Second))
	r := newRule(t, l, "r", limit.PerHour(2))
	d := mustAllow(t, r, "k", 2)
	big, leave := context.WithCancel(t.Context())
	var all sync.WaitGroup
	wait := func(ctx context.Context, cost int64, want error) {
		before := waiting(l, "r", "k")
		all.Go(func() {
			if _, err := r.Wait(ctx, "k", cost); !errors.Is(err, want) {
				t.Errorf("cost %d: %v", cost, err)
			}
		})
		redistest.Eventually(t, "it waits", func() bool { return waiting(l, "r", "k") == before+1 })
	}
	wait(big, 2, context.Canceled)
	wait(t.Context(), 1, nil)
	if err := r.Refund(t.Context(), "k", &d, 1); err != nil {
		t.Fatal(err)
	}
	leave()
	all.Wait()

	wait(t.Context(), 1, nil)
	wait(t.Context(), 1, nil)
	if err := r.Reset(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	all.Wait()

	// The same is true if a rule with another limit gives the units back: a denial that is remembered under the
	// waiter's own limit does not delay the waiter.
	plan, err := r.WithLimit(limit.PerHour(3))
	if err != nil {
		t.Fatal(err)
	}
	mustAllow(t, plan, "k", 1)
	waits, end := context.WithCancel(t.Context())
	defer time.AfterFunc(time.Minute, end).Stop()
	denied := counted(l, "r", deniedOf)
	all.Go(func() {
		if _, err := plan.Wait(waits, "k", 1); err != nil {
			t.Errorf("units came back under another limit: %v", err)
		}
	})
	redistest.Eventually(t, "it is denied", func() bool { return counted(l, "r", deniedOf) == denied+1 })
	if err := r.Reset(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	all.Wait()

	wait(t.Context(), 2, limit.ErrClosed)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	all.Wait()
}

// Metrics count the denial of the first waiter in the queue, callers that are turned away without asking Redis,
// and callers whose context ends, each once.
func TestWaitersAreCounted(t *testing.T) {
	t.Parallel()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), Deadline(5*time.Second))
	r := newRule(t, l, "r", limit.PerHour(2), Use(limit.SlidingLog()))
	check := func(when string, denied int, cancelled uint64) {
		t.Helper()
		errs := ruleStats(l, "r").Errors
		if n := counted(l, "r", deniedOf); n != denied || errs.Cancelled != cancelled || errs.Total() != cancelled {
			t.Errorf("%s: %d denials and errors %+v are counted, want %d and %d", when, n, errs, denied, cancelled)
		}
	}
	hurried, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	mustAllow(t, r, "k", 2)
	if _, err := r.Wait(hurried, "k", 1); !errors.Is(err, limit.ErrWouldExceedDeadline) {
		t.Error(err)
	}
	check("the first in the queue is denied", 1, 0)
	patient, leave := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := r.Wait(patient, "k", 1); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	redistest.Eventually(t, "it has to wait", func() bool { return counted(l, "r", deniedOf) == 2 })
	if _, err := r.Wait(hurried, "k", 1); !errors.Is(err, limit.ErrWouldExceedDeadline) {
		t.Error(err)
	}
	check("one behind it is turned away", 3, 0)
	impatient, leaveBehind := context.WithCancel(t.Context())
	var behind sync.WaitGroup
	behind.Go(func() {
		if _, err := r.Wait(impatient, "k", 1); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	redistest.Eventually(t, "another one waits behind it", func() bool { return waiting(l, "r", "k") == 2 })
	leaveBehind()
	behind.Wait()
	check("one behind it has left", 3, 1)
	leave()
	all.Wait()
	check("the first has left", 3, 2)
}

// If a caller is turned away because Redis is lost, the decision says so, also for a caller that waits behind
// another.
func TestWhoIsTurnedAwayInAnOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t), redistest.Prefix(), Deadline(5*time.Second))
	r := newRule(t, l, "r", limit.PerHour(9), OnOutage(Deny))
	server.Kill()
	turnedAway := func(who string) {
		t.Helper()
		for range 100 {
			hurried, cancel := context.WithTimeout(t.Context(), outage.ProbeEvery*4/5)
			d, err := r.Wait(hurried, "k", 1)
			cancel()
			if errors.Is(err, context.DeadlineExceeded) {
				continue // the machine paused
			}
			if !errors.Is(err, limit.ErrWouldExceedDeadline) || !d.Denied() || d.Tier != limit.TierFallback {
				t.Errorf("%s: %+v, %v", who, d, err)
			}
			return
		}
		t.Errorf("%s: nobody was turned away in time", who)
	}
	turnedAway("the first")
	patient, leave := context.WithCancel(t.Context())
	var first sync.WaitGroup
	denied := counted(l, "r", deniedOf)
	first.Go(func() { _, _ = r.Wait(patient, "k", 1) })
	redistest.Eventually(t, "another waits", func() bool { return counted(l, "r", deniedOf) > denied })
	turnedAway("one behind another")
	leave()
	first.Wait()
	_ = l.Close() // returns the error that the instance could not leave the fleet
}

// If another process gives units back, a caller finds them when it joins a queue more than a second after the
// answer on which the queue waits.
func TestWhoJoinsLaterLooksAgain(t *testing.T) {
	t.Parallel()
	server, prefix := redistest.Shared(t), redistest.Prefix()
	here, there := newLimiterOn(t, server.Client(t), prefix), newLimiterOn(t, server.Client(t), prefix)
	r, other := newRule(t, here, "r", limit.PerHour(2), Use(limit.SlidingLog())), newRule(t, there, "r", limit.PerHour(2), Use(limit.SlidingLog()))
	used := mustAllow(t, other, "k", 2)
	wait := func(ctx context.Context) {
		if d, err := r.Wait(ctx, "k", 1); err != nil || !d.Allowed {
			t.Errorf("%+v, %v", d, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	patient, leave := context.WithCancel(t.Context())
	defer leave()
	var first sync.WaitGroup
	first.Go(func() { wait(patient) })
	redistest.Eventually(t, "it waits", func() bool { return counted(here, "r", deniedOf) == 1 })
	mustRefund(t, other, "k", &used, 2)
	time.Sleep(lookAgain + 50*time.Millisecond)
	if wait(ctx); t.Failed() {
		leave()
	}
	first.Wait()
}

// Waiters that one answer of Redis serves get decisions as if each had asked alone, in order, and each is
// counted. The remaining waiters continue to wait.
func TestWaitersShareAnAnswer(t *testing.T) {
	t.Parallel()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), Deadline(5*time.Second))
	r := newRule(t, l, "r", limit.PerHour(20), Use(limit.SlidingLog()))
	used := mustAllow(t, r, "k", 20)
	patient, leave := context.WithCancel(t.Context())
	served := make(chan limit.Decision, 5)
	var all sync.WaitGroup
	for range cap(served) {
		all.Go(func() {
			d, err := r.Wait(patient, "k", 2)
			if err == nil {
				served <- d
			} else if !errors.Is(err, context.Canceled) || d.Granted != 0 {
				t.Errorf("%+v, %v", d, err)
			}
		})
	}
	redistest.Eventually(t, "they wait", func() bool { return waiting(l, "r", "k") == cap(served) && counted(l, "r", deniedOf) == 1 })
	trips := tripsOf(l)
	if err := r.Refund(t.Context(), "k", &used, 7); err != nil {
		t.Fatal(err)
	}
	left := map[int64]bool{}
	for range 3 {
		d := <-served
		left[d.Remaining] = true
		if !d.Allowed || d.Granted != 2 || d.ChargedAt == 0 || d.RetryAfter != 0 || d.Tier != limit.TierRedis {
			t.Errorf("%+v", d)
		}
	}
	if !left[5] || !left[3] || !left[1] {
		t.Errorf("remaining after each of three: %v, want 5, 3 and 1", left)
	}
	if n := tripsOf(l) - trips; n != 2 {
		t.Errorf("%d trips for a refund and those who wait for it", n)
	}
	if n := counted(l, "r", func(s TierStats) uint64 { return s.Allowed }); n != 4 {
		t.Errorf("%d grants are counted", n)
	}
	if n := waiting(l, "r", "k"); n != 2 {
		t.Errorf("%d still wait", n)
	}
	if n := counted(l, "r", deniedOf); n != 1 {
		t.Errorf("%d denials are counted, but only the first answer was one", n)
	}
	leave()
	all.Wait()
}

// The time that a queue takes is longer than any window rather than negative, however much is waited for.
func TestWaitsThatTakeCenturies(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	for _, a := range []limit.Algorithm{limit.SlidingLog(), limit.GCRA()} {
		r := newRule(t, l, a.Name(), limit.Per(1, 8760*time.Hour), Use(a))
		if d := r.takesAtLeast(1, 1_000_000); d < limit.MaxWindow {
			t.Errorf("%v: a million years are %v", a, d)
		}
	}
}

// Whichever waiters leave, and whenever, Redis has charged exactly the units that were granted.
func TestWaitersWhoLeaveCostNothing(t *testing.T) {
	t.Parallel()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), Deadline(5*time.Second))
	const quota = 100_000
	r := newRule(t, l, "r", limit.PerHour(quota), Use(limit.SlidingLog()))
	var granted, left atomic.Int64
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for range 20 {
				ctx, cancel := context.WithCancel(t.Context())
				if random.IntN(2) == 0 {
					time.AfterFunc(time.Duration(random.IntN(2000))*time.Microsecond, cancel)
				}
				d, err := r.Wait(ctx, "k", 1+random.Int64N(2))
				if granted.Add(d.Granted); err != nil {
					left.Add(1)
				}
				cancel()
			}
		})
	}
	all.Wait()
	redistest.Eventually(t, "all is given back", func() bool {
		d, err := r.Peek(t.Context(), "k", 1)
		return err == nil && quota-d.Remaining == granted.Load()
	})
	t.Logf("%d units were granted, %d calls left", granted.Load(), left.Load())
	if left.Load() == 0 {
		t.Error("nobody left")
	}
}

// While Redis is lost, waiters are also served in order, and without trips.
func TestWaitersWithoutTrips(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t), redistest.Prefix(), Deadline(50*time.Millisecond))
	r := newRule(t, l, "r", limit.Per(50, 500*time.Millisecond))
	server.Pause()
	t.Cleanup(server.Resume)
	redistest.Eventually(t, "Redis counts as lost", func() bool { mustAllow(t, r, "other", 1); return l.Degraded() })
	var all sync.WaitGroup
	took := make([]time.Duration, 120)
	started := time.Now()
	for i := range took {
		all.Go(func() {
			d, err := r.Wait(t.Context(), "k", 1)
			if took[i] = time.Since(started); err != nil || !d.Degraded() {
				t.Errorf("%+v, %v", d, err)
			}
		})
	}
	all.Wait()
	if longest := slices.Max(took); longest < 900*time.Millisecond || longest > 10*time.Second {
		t.Errorf("120 units at 50 per 500 ms took %v", longest)
	}
}

// If waiters were denied without Redis, and their units are free only in an hour, they ask again every second,
// because Redis may be back and grant them earlier.
func TestWaitersLearnThatRedisIsBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t), redistest.Prefix(), Deadline(50*time.Millisecond))
	r := newRule(t, l, "r", limit.PerHour(2))
	server.Pause()
	redistest.Eventually(t, "Redis counts as lost", func() bool { mustAllow(t, r, "other", 1); return l.Degraded() })
	for mustAllow(t, r, "k", 1).Allowed { // uses up this instance's share
	}
	served := make(chan error, 1)
	go func() {
		_, err := r.Wait(t.Context(), "k", 1)
		served <- err
	}()
	redistest.Eventually(t, "it waits, for a second at most", func() bool {
		l.lines.mu.Lock()
		defer l.lines.mu.Unlock()
		q := l.lines.byKey[local.HeldKey{Rule: "r", Key: "k"}]
		return len(q) > 0 && !q[0].next.IsZero() && q[0].next.Sub(q[0].answeredAt) <= lookAgain
	})
	server.Resume()
	client := server.Client(t)
	redistest.Eventually(t, "Redis, which has units free again, is asked", func() bool {
		// Another process resets the key, even after the units granted without Redis have been charged.
		if err := client.Del(t.Context(), l.keys.Key("r", "k")).Err(); err != nil {
			t.Error(err)
		}
		select {
		case err := <-served:
			if err != nil {
				t.Error(err)
			}
			return true
		default:
			return false
		}
	})
}

// Waiters that leave while Redis is being asked for them leave no units charged.
func TestWaitersWhoLeaveWhileTheyAreAskedFor(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t), redistest.Prefix(), Deadline(5*time.Second))
	r := newRule(t, l, "r", limit.PerHour(10))
	mustAllow(t, r, "k", 10)
	ctx, leave := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if _, err := r.Wait(ctx, "k", 2); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	redistest.Eventually(t, "they wait", func() bool { return waiting(l, "r", "k") == 3 })
	askInVain(t, server, r, "k")
	leave()
	all.Wait() // no caller waits for Redis to come back
	server.Resume()
	redistest.Eventually(t, "all is given back", func() bool {
		d, err := r.Peek(t.Context(), "k", 1)
		return err == nil && d.Remaining == 10
	})
}

// askInVain makes a key's units free, pauses Redis, and returns while Redis is being asked for the waiters.
func askInVain(t *testing.T, server *redistest.Server, r *Rule, key remote.UserKey) {
	t.Helper()
	l := r.limiter
	if err := server.Client(t).Del(t.Context(), l.keys.Key(r.name, key)).Err(); err != nil {
		t.Fatal(err)
	}
	r.forgetDenial(l.key(string(key)).hash)
	server.Pause()
	l.lines.release(local.HeldKey{Rule: r.name, Key: string(key)})
	redistest.Eventually(t, "they are asked for", func() bool {
		l.lines.mu.Lock()
		defer l.lines.mu.Unlock()
		q := l.lines.byKey[local.HeldKey{Rule: r.name, Key: string(key)}]
		return len(q) > 0 && q[0].asking
	})
}

// Law 12: Close gives back the units that Redis is being asked for on behalf of waiters. The waiters may have
// left before, as in a service that shuts down, or Close sends them away.
func TestLaw12CloseGivesBackWhatNobodyWaitsForAnyMore(t *testing.T) {
	t.Parallel()
	for what, leaves := range map[string]bool{"they have left": true, "they wait": false} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server, prefix := redistest.Start(t), redistest.Prefix()
			l := newLimiterOn(t, server.Client(t), prefix, Deadline(10*time.Second))
			r := newRule(t, l, "r", limit.PerHour(10))
			mustAllow(t, r, "k", 10)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			var all sync.WaitGroup
			want := limit.ErrClosed
			if leaves {
				want = context.Canceled
			}
			for range 3 {
				all.Go(func() {
					if d, err := r.Wait(ctx, "k", 2); !errors.Is(err, want) {
						t.Errorf("%+v, %v, want %v", d, err, want)
					}
				})
			}
			redistest.Eventually(t, "they wait", func() bool { return waiting(l, "r", "k") == 3 })
			askInVain(t, server, r, "k")
			if leaves {
				leave()
				all.Wait()
			}
			closed := make(chan error, 1)
			go func() { closed <- l.Close() }()
			redistest.Eventually(t, "Close has begun", l.closed.Load)
			if !leaves {
				all.Wait() // no caller waits for Redis to come back
			}
			server.Resume()
			if err := <-closed; err != nil {
				t.Error(err)
			}
			again := newRule(t, newLimiterOn(t, server.Client(t), prefix), "r", limit.PerHour(10))
			if d, err := again.Peek(t.Context(), "k", 1); err != nil || d.Remaining != 10 {
				t.Errorf("%+v, %v: units are still charged", d, err)
			}
		})
	}
}

// A caller that waits under one limit does not block callers whose limit of the same name has room, such as the
// limit of a tenant's plan, or one that was raised meanwhile.
func TestWaitingUnderAnotherLimit(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), Deadline(5*time.Second))
	var all sync.WaitGroup
	defer all.Wait()

	jobs := newRule(t, l, "jobs", limit.Concurrent(1))
	held := mustAcquire(t, jobs, "k", 1)
	all.Go(func() {
		slot, err := jobs.AcquireWait(ctx, "k", 1)
		if err != nil {
			t.Errorf("who waits under the old limit: %v", err)
		}
		slot.Release()
	})
	redistest.Eventually(t, "it waits", func() bool { return waiting(l, "jobs", "k") == 1 })
	more, err := l.ChangeRule("jobs", limit.Concurrent(2))
	if err != nil {
		t.Fatal(err)
	}
	slot, err := more.AcquireWait(ctx, "k", 1)
	if err != nil {
		t.Fatalf("under the raised limit: %v", err)
	}
	if n := waiting(l, "jobs", "k"); n != 1 {
		t.Errorf("%d wait under the old limit", n)
	}
	slot.Release()
	held.Release()

	rate := newRule(t, l, "rate", limit.PerHour(1))
	mustAllow(t, rate, "k", 1)
	waits, leave := context.WithCancel(context.Background())
	defer leave()
	all.Go(func() {
		if _, err := rate.Wait(waits, "k", 1); !errors.Is(err, context.Canceled) {
			t.Errorf("who waits for an hour: %v", err)
		}
	})
	redistest.Eventually(t, "it waits", func() bool { return waiting(l, "rate", "k") == 1 })
	plan, err := rate.WithLimit(limit.PerHour(2))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Wait(ctx, "k", 1); err != nil {
		t.Errorf("under the larger limit: %v", err)
	}
	leave()
	all.Wait()
	l.lines.mu.Lock()
	defer l.lines.mu.Unlock()
	if n := len(l.lines.byKey); n != 0 || l.lines.nonEmpty.Load() {
		t.Errorf("%d lines are left", n)
	}
}

// In an outage, a waiting caller does not block callers whose policy is Allow.
func TestWaitingUnderAnotherPolicy(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		l := newLimiterOn(t, bubble.Client(t), redistest.Prefix(), Deadline(100*time.Millisecond))
		rate, slots := newRule(t, l, "rate", limit.PerHour(1)), newRule(t, l, "slots", limit.Concurrent(1))
		mustAllow(t, rate, "k", 1)
		mustAcquire(t, slots, "k", 1)
		var all sync.WaitGroup
		defer all.Wait()
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		all.Go(func() {
			if _, err := rate.Wait(ctx, "k", 1); !errors.Is(err, context.Canceled) {
				t.Errorf("who waits for an hour: %v", err)
			}
		})
		all.Go(func() {
			if _, err := slots.AcquireWait(ctx, "k", 1); !errors.Is(err, context.Canceled) {
				t.Errorf("who waits for a slot: %v", err)
			}
		})
		before := make(chan error, 1) // the result of a caller that already waits when the outage begins
		all.Go(func() {
			open, err := rate.WithOutage(Allow)
			if err == nil {
				_, err = open.Wait(ctx, "k", 1)
			}
			before <- err
		})
		time.Sleep(2 * time.Second)
		if _, err := rate.Peek(t.Context(), "k", 1); err != nil { // renews the remembered denial
			t.Fatal(err)
		}
		bubble.Late.Store(int64(time.Second))
		for l.State() != Outage {
			mustAllow(t, rate, "x", 1)
		}
		time.Sleep(2 * lookAgain)
		select {
		case err := <-before:
			if err != nil {
				t.Errorf("under Allow: %v", err)
			}
		default:
			t.Error("who waited under Allow before the outage waits on")
		}
		for _, wait := range []func(context.Context) error{
			func(ctx context.Context) error {
				open, err := rate.WithOutage(Allow)
				if err == nil {
					_, err = open.Wait(ctx, "k", 1)
				}
				return err
			},
			func(ctx context.Context) error {
				open, err := slots.WithOutage(Allow)
				if err == nil {
					_, err = open.AcquireWait(ctx, "k", 1)
				}
				return err
			},
		} {
			soon, cancel := context.WithCancel(t.Context()) // a deadline would make Wait return at once
			time.AfterFunc(5*time.Second, cancel)
			if err := wait(soon); err != nil {
				t.Errorf("under Allow: %v", err)
			}
		}
		leave()
	})
}
