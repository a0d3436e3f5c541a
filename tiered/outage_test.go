package tiered

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/model"
	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// grants records the decisions of many goroutines, and when units were granted.
type grants struct {
	mu     sync.Mutex
	stamps []int64
	byTier map[limit.Tier]int
	slow   []time.Duration // the durations of calls that took longer than the deadline and the slack
	opened []time.Duration // the durations of calls while the breaker was open
}

// offer sends requests of one key to a rule, at a steady rate, until stop closes.
//
// Each call is accompanied by a bare timer of the deadline's length. If the timer is late, the machine has
// paused, and that time is not counted for the call.
func (g *grants) offer(t *testing.T, r *Rule, every, deadline, slack time.Duration, stop <-chan struct{}) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticker.C:
		}
		wasOpen := r.limiter.Degraded()
		started := time.Now()
		late := make(chan time.Duration, 1)
		control := time.AfterFunc(deadline, func() { late <- time.Since(started) - deadline })
		d, err := r.Allow(context.Background(), "key")
		took := time.Since(started)
		if took > deadline+slack {
			stall := <-late
			t.Logf("a call took %v, a bare timer was %v late", took, stall)
			took -= stall
		}
		control.Stop()
		if err != nil {
			t.Errorf("error under Approximate: %v", err)
			return
		}
		g.mu.Lock()
		g.byTier[d.Tier]++
		if took > deadline+slack {
			g.slow = append(g.slow, took)
		}
		if wasOpen && d.Tier == limit.TierFallback {
			g.opened = append(g.opened, took)
		}
		if d.Allowed {
			g.stamps = append(g.stamps, time.Now().UnixMicro())
		}
		g.mu.Unlock()
	}
}

func (g *grants) worstWindow(window time.Duration) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return model.MaxInWindow(g.stamps, slices.Repeat([]int64{1}, len(g.stamps)), window.Microseconds())
}

func (g *grants) tier(t limit.Tier) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.byTier[t]
}

// Laws 7 and 11: Redis hangs in the middle of traffic. No call takes longer than its deadline, and calls after
// the breaker has opened take microseconds. The four instances together stay within twice the limit in any
// window. Redis decides again, without intervention, after it wakes.
func TestLaws7And11RedisHangsInMidTraffic(t *testing.T) {
	const (
		instances = 4
		quota     = 100
		window    = time.Second
		deadline  = 200 * time.Millisecond // Redis decides again only if its answers are in time
		// A busy machine runs timers and goroutines late. A call that waited for Redis or for the client's own
		// time-outs would take three seconds. TestLaw7DecisionsEndAtTheirDeadline measures to the millisecond.
		slack = time.Second
	)
	server, prefix := redistest.Start(t), redistest.Prefix()
	g := &grants{byTier: make(map[limit.Tier]int)}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var limiters []*Limiter
	for range instances {
		l := newLimiterOn(t, server.Client(t), prefix, Deadline(deadline), RememberDenials(0))
		limiters = append(limiters, l)
	}
	// All instances must know of each other.
	redistest.Eventually(t, "four instances know of each other", func() bool {
		return !slices.ContainsFunc(limiters, func(l *Limiter) bool { return l.FleetSize() != instances })
	})
	for _, l := range limiters {
		r := newRule(t, l, "r", limit.Per(quota, window))
		// With 100 requests a second each, the four instances ask for four times what the limit lets through.
		wg.Go(func() { g.offer(t, r, 10*time.Millisecond, deadline, slack, stop) })
	}
	all := func(degraded bool) func() bool {
		return func() bool {
			return !slices.ContainsFunc(limiters, func(l *Limiter) bool { return l.Degraded() != degraded })
		}
	}

	redistest.Eventually(t, "Redis decides", func() bool { return g.tier(limit.TierRedis) > 250 })
	server.Pause()
	redistest.Eventually(t, "all breakers open", all(true))
	before := g.tier(limit.TierFallback)
	// This takes more than a whole window of the outage.
	redistest.Eventually(t, "decisions without Redis", func() bool { return g.tier(limit.TierFallback) > before+500 })
	server.Resume()
	redistest.Eventually(t, "all breakers closed", all(false))
	before = g.tier(limit.TierRedis)
	redistest.Eventually(t, "Redis decides again", func() bool { return g.tier(limit.TierRedis) > before+500 })
	close(stop)
	wg.Wait()

	worst := g.worstWindow(window)
	slices.Sort(g.opened)
	median, p99 := g.opened[len(g.opened)/2], g.opened[len(g.opened)*99/100]
	t.Logf("worst window %d of %d; %d decisions by Redis, %d without; once open: median %v, p99 %v",
		worst, quota, g.tier(limit.TierRedis), g.tier(limit.TierFallback), median, p99)
	if worst > 2*quota {
		t.Errorf("%d granted in a window, above twice the limit of %d", worst, quota)
	}
	if len(g.slow) > 0 {
		t.Errorf("%d calls took longer than the deadline: %v", len(g.slow), g.slow)
	}
	if median > 100*time.Microsecond {
		t.Errorf("with the breaker open a call took %v (median)", median)
	}
}

// Law 7: no decision takes longer than the deadline, to the millisecond, while Redis does not answer.
func TestLaw7DecisionsEndAtTheirDeadline(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		const deadline = 50 * time.Millisecond
		l := newLimiterOn(t, bubble.Client(t), redistest.Prefix(), Deadline(deadline), RememberDenials(0))
		r := newRule(t, l, "r", limit.PerHour(10))
		bubble.Late.Store(int64(time.Minute))
		var withoutRedis atomic.Int64
		var callers sync.WaitGroup
		for i := range 8 {
			callers.Go(func() {
				time.Sleep(time.Duration(i) * 7 * time.Millisecond) // some lead a trip, and others join one or wait for it
				for range 20 {
					began := time.Now()
					if d := mustAllow(t, r, "k", 1); d.Degraded() {
						withoutRedis.Add(1)
					}
					if took := time.Since(began); took > deadline+time.Millisecond {
						t.Errorf("a call took %v", took)
					}
				}
			})
		}
		callers.Wait()
		if withoutRedis.Load() != 8*20 {
			t.Errorf("%d were decided without Redis, want all", withoutRedis.Load())
		}
	})
}

// Law 11: in an outage, the fleet shares the limit. An instance's share is what it granted in the last window,
// and its part of the units that were free.
func TestLaw11OutageSharesTheLimit(t *testing.T) {
	t.Parallel()
	const instances, quota = 4, 100
	server, prefix := redistest.Start(t), redistest.Prefix()
	var limiters []*Limiter
	var rules []*Rule
	for range instances {
		l := newLimiterOn(t, server.Client(t), prefix)
		limiters = append(limiters, l)
		rules = append(rules, newRule(t, l, "r", limit.PerHour(quota)))
	}
	redistest.Eventually(t, "four instances know of each other", func() bool {
		return !slices.ContainsFunc(limiters, func(l *Limiter) bool { return l.FleetSize() != instances })
	})
	// The first instance has granted 20 units, and may grant a quarter of the remaining 80. The others do not
	// know the key.
	for range 20 {
		if d, err := rules[0].Allow(context.Background(), "k"); err != nil || !d.Allowed || d.Degraded() {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	server.Kill()
	for _, l := range limiters {
		l.shard.Breaker.ForceOpen(fmt.Errorf("killed"))
	}
	for i, want := range []int{20, 25, 25, 25} {
		granted := 0
		for range 2 * quota {
			d, err := rules[i].Allow(context.Background(), "k")
			if err != nil || !d.Degraded() {
				t.Fatalf("%+v, %v", d, err)
			}
			if d.Allowed {
				granted++
			} else if d.RetryAfter <= 0 || d.RetryAfter > 5*time.Second { // not hours: Redis may be back earlier
				t.Fatalf("denied with retry after %v", d.RetryAfter)
			}
		}
		if granted != want {
			t.Errorf("instance %d granted %d, want %d", i, granted, want)
		}
	}
}

func TestOutagePolicies(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t), redistest.Prefix())
	rules := map[OutagePolicy]*Rule{}
	for _, p := range []OutagePolicy{Approximate, Allow, Deny} {
		rules[p] = newRule(t, l, p.String(), limit.PerHour(3), OnOutage(p))
	}
	server.Kill()
	l.shard.Breaker.ForceOpen(fmt.Errorf("killed"))
	for p, want := range map[OutagePolicy]int{Approximate: 3, Allow: 10, Deny: 0} {
		granted := 0
		for range 10 {
			d, err := rules[p].Allow(context.Background(), "k")
			if err != nil || d.Tier != limit.TierFallback || !d.Degraded() {
				t.Fatalf("%v: %+v, %v", p, d, err)
			}
			if d.Allowed {
				granted++
			} else if d.RetryAfter <= 0 {
				t.Errorf("%v: denied without a retry after", p)
			}
		}
		if granted != want {
			t.Errorf("%v granted %d of 10 at a limit of 3, want %d", p, granted, want)
		}
	}
	server.Restart()
	redistest.Eventually(t, "Redis decides again", func() bool {
		d, err := rules[Deny].Allow(context.Background(), "k")
		return err == nil && d.Allowed && d.Tier == limit.TierRedis
	})
}

// A service must not depend on Redis to start.
func TestStartsWithoutRedis(t *testing.T) {
	server := redistest.Start(t)
	server.Kill()
	l := newLimiterOn(t, server.Client(t), redistest.Prefix(), FleetSize(5))
	if !l.Degraded() || l.FleetSize() != 5 {
		t.Fatalf("degraded %v, fleet of %d", l.Degraded(), l.FleetSize())
	}
	granted := func(r *Rule) (n int) {
		for range 10 {
			if d := mustAllow(t, r, "k", 1); d.Allowed {
				n++
			}
		}
		return n
	}
	// Law 11: the instance may have replaced a process that has already granted its share. Still, every key gets
	// a unit, and nobody is told to wait for hours.
	for _, r := range []*Rule{newRule(t, l, "hour", limit.PerHour(10)), newRule(t, l, "day", limit.PerDay(1)), newRule(t, l, "gcra", limit.PerDay(1000), Use(limit.GCRA()))} {
		if n := granted(r); n != 1 {
			t.Errorf("%s: %d granted at the start, want 1", r.Name(), n)
		}
		if d := mustAllow(t, r, "k", 1); d.Allowed || d.RetryAfter <= 0 || d.RetryAfter > outage.RetryWithin {
			t.Errorf("%s: %+v", r.Name(), d)
		}
		if d, err := r.Peek(context.Background(), "k", 1); err != nil || d.Allowed || d.RetryAfter <= 0 || d.RetryAfter > outage.RetryWithin {
			t.Errorf("%s: a look says %+v, %v", r.Name(), d, err)
		}
	}
	const window = 500 * time.Millisecond
	r := newRule(t, l, "r", limit.Per(10, window))
	redistest.Eventually(t, "a window has passed", func() bool { return l.now() > l.shards.ColdStart.Born+int64(window) })
	if n := granted(r); n != 2 {
		t.Errorf("one of five instances granted %d of 10, want 2", n)
	}
	server.Restart()
	redistest.Eventually(t, "Redis decides", func() bool {
		d, err := r.Allow(context.Background(), "another")
		return err == nil && d.Tier == limit.TierRedis
	})
	if l.FleetSize() != 1 {
		t.Errorf("fleet of %d, want 1", l.FleetSize())
	}
}
