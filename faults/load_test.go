//go:build unix

package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// loadVariable is the environment variable that selects the long form of this test. Its value is the duration, such
// as "10m".
const loadVariable = "FAULTS_LOAD"

// Laws 6 and 7: no call fails because of load, and every call returns in time. The test applies random loads, with
// Redis at random speeds, paused or cut off, to rules of all kinds and policies. Every call gets a decision, or the
// error of its own context.
func TestLaws6And7NoCallFailsForLoad(t *testing.T) {
	t.Parallel()
	span := 6 * time.Second
	if text := os.Getenv(loadVariable); text != "" {
		var err error
		if span, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", loadVariable, err)
		}
	}
	for _, on := range []string{"one node", "cluster"} {
		t.Run(on, func(t *testing.T) {
			t.Parallel()
			r := &redises{}
			if on == "cluster" {
				cluster := redistest.StartCluster(t, 3)
				r.servers, r.proxies = cluster.Nodes(), startProxies(t, cluster.Addrs()...)
				r.client = func(t *testing.T, pool int) redis.UniversalClient {
					return cluster.Client(t, func(o *redis.ClusterOptions) { o.Dialer, o.PoolSize = r.proxies.dial, pool })
				}
			} else {
				server := redistest.Start(t)
				r.servers, r.proxies = []*redistest.Server{server}, startProxies(t, server.Addr())
				r.client = func(t *testing.T, pool int) redis.UniversalClient {
					return server.Client(t, func(o *redis.Options) { o.Dialer, o.PoolSize = r.proxies.dial, pool })
				}
			}
			var all tally
			// The first trial is known to get decisions from all tiers.
			tr := newTrial(rand.Uint64())
			tr.queue, tr.callers, tr.speeds = 1, 200, []speed{{what: "stopped", span: loadSlack}}
			more := func(since time.Duration) bool { // on a busy machine, until each tier has decided something
				return since < span || since < span+time.Minute && len(all.idle()) > 0
			}
			for began := time.Now(); more(time.Since(began)) && !t.Failed(); tr = newTrial(rand.Uint64()) {
				t.Run(fmt.Sprint("seed ", tr.seed), func(t *testing.T) { tr.run(t, r, &all) })
			}
			t.Logf("decided %v; %d calls ended with their contexts", all.by(), all.ended.Load())
			if idle := all.idle(); len(idle) > 0 {
				t.Errorf("the test shows little: nothing was decided by %v", idle)
			}
		})
	}
}

// trial is one load on a limiter.
type trial struct {
	seed     uint64
	deadline time.Duration // the limiter's deadline
	queue    int
	pool     int  // number of the client's connections
	opaque   bool // the client's type is hidden, so that the limiter cannot make it keep deadlines
	callers  int
	every    time.Duration // mean time between calls of all callers; even a slow machine can answer so many without Redis
	keys     int
	speeds   []speed
}

// loadSlack is how late a call may be on a machine that is busy with so many calls. In the first trial, a call that
// waited for Redis would be as late as this.
const loadSlack = 2500 * time.Millisecond

// pick returns one of several values at random.
func pick[T any](random *rand.Rand, of ...T) T { return of[random.IntN(len(of))] }

func newTrial(seed uint64) *trial {
	random := rand.New(rand.NewPCG(seed, 0))
	tr := &trial{
		seed:     seed,
		deadline: pick(random, 10*time.Millisecond, 50*time.Millisecond, 200*time.Millisecond),
		queue:    pick(random, 1, 30, 100_000),
		pool:     pick(random, 1, 8, 100),
		opaque:   random.IntN(3) == 0,
		callers:  1 + random.IntN(pick(random, 10, 100, 500)),
		every:    pick(random, 100*time.Microsecond, 300*time.Microsecond, 2*time.Millisecond),
		keys:     1 + random.IntN(pick(random, 1, 20, 1000)),
	}
	for range 1 + random.IntN(4) {
		tr.speeds = append(tr.speeds, newSpeed(random))
	}
	return tr
}

func (tr *trial) String() string {
	return fmt.Sprintf("deadline %v, a queue of %d, %d connections (opaque: %v), %d callers, one call every %v, %d keys; %v",
		tr.deadline, tr.queue, tr.pool, tr.opaque, tr.callers, tr.every, tr.keys, tr.speeds)
}

// tally counts the results of calls.
type tally struct {
	tiers [limit.TierOverload + 1]atomic.Int64
	ended atomic.Int64 // calls ended by their own contexts
}

// idle returns those of the expected tiers that have decided nothing.
func (a *tally) idle() (idle []limit.Tier) {
	for _, tier := range []limit.Tier{limit.TierRedis, limit.TierFallback, limit.TierOverload} {
		if a.tiers[tier].Load() == 0 {
			idle = append(idle, tier)
		}
	}
	return idle
}

func (a *tally) by() (text string) {
	for tier := range a.tiers {
		text += fmt.Sprintf("%v %d, ", limit.Tier(tier), a.tiers[tier].Load())
	}
	return text + "in all"
}

func (tr *trial) run(t *testing.T, r *redises, all *tally) {
	client := r.client(t, tr.pool)
	if tr.opaque {
		client = struct{ redis.UniversalClient }{client}
	}
	l := newLimiter(t, client, redistest.Prefix(), tiered.Deadline(tr.deadline), tiered.QueueLength(tr.queue))
	rules, before := loadRules(t, l), all.tiers[limit.TierRedis].Load()
	stop := make(chan struct{})
	var callers sync.WaitGroup
	for i := range tr.callers {
		callers.Go(func() {
			random := rand.New(rand.NewPCG(tr.seed, uint64(1+i)))
			for goesOn(stop) && !t.Failed() { // one failure is enough
				tr.call(t, l, rules, random, all)
				time.Sleep(time.Duration(random.Int64N(2 * int64(tr.callers) * int64(tr.every))))
			}
		})
	}
	redistest.Eventually(t, "Redis decides", func() bool { return all.tiers[limit.TierRedis].Load() > before || t.Failed() })
	for _, s := range tr.speeds {
		r.during(t, s)
	}
	close(stop)
	callers.Wait()
	if t.Failed() {
		t.Log(tr)
	}
}

// loadRules returns rules of all policies and algorithms. Some of them deny much and others nothing, one has
// leases, and one limits what is in flight.
func loadRules(t *testing.T, l *tiered.Limiter) (rules []*tiered.Rule) {
	t.Helper()
	algorithms := []limit.Algorithm{limit.SlidingLog(), limit.SlidingCounter(limit.DefaultBuckets, limit.Strict), limit.GCRA(), limit.FixedWindow()}
	for _, policy := range []tiered.OutagePolicy{tiered.Approximate, tiered.Allow, tiered.Deny} {
		for i, a := range algorithms {
			lim := limit.PerSecond(1_000)
			if i%2 == 0 {
				lim = limit.PerHour(100_000)
			}
			rules = append(rules, newRule(t, l, fmt.Sprint(a.Name(), "-", policy), lim, tiered.Use(a), tiered.OnOutage(policy)))
		}
	}
	return append(rules,
		newRule(t, l, "leased", limit.PerHour(100_000), tiered.Lease(10)),
		newRule(t, l, "in-flight", limit.Concurrent(20)))
}

// call makes a random call, with a context of its own that may end early.
func (tr *trial) call(t *testing.T, l *tiered.Limiter, rules []*tiered.Rule, random *rand.Rand, all *tally) {
	ctx, cancel := context.WithCancel(t.Context())
	switch within := time.Duration(random.Int64N(int64(2 * tr.deadline))); random.IntN(8) {
	case 0:
		ctx, cancel = context.WithTimeout(t.Context(), within)
	case 1:
		defer time.AfterFunc(within, cancel).Stop()
	}
	defer cancel()

	countable, inFlight := rules[:len(rules)-1], rules[len(rules)-1]
	one, other := pick(random, countable...), pick(random, countable...)
	key := fmt.Sprint(random.IntN(tr.keys))
	both := []tiered.Request{{Rule: one, Key: key, Cost: 1}, {Rule: other, Key: key + "x", Cost: 2}}
	within := tr.deadline
	var name string
	var ask func() ([]limit.Decision, error)
	alone := func(d limit.Decision, err error) ([]limit.Decision, error) { return []limit.Decision{d}, err }
	switch random.IntN(10) {
	case 0:
		name, ask = "AllowAll", func() ([]limit.Decision, error) { return l.AllowAll(ctx, both...) }
		within *= 2 // on a Cluster, part of the group may have to be refunded
	case 1:
		name, ask = "AllowEach", func() ([]limit.Decision, error) { return l.AllowEach(ctx, both...) }
	case 2:
		name, ask = "AllowUpTo", func() ([]limit.Decision, error) { return alone(one.AllowUpTo(ctx, key, 5)) }
	case 3:
		name, ask = "Peek", func() ([]limit.Decision, error) { return alone(one.Peek(ctx, key, 1)) }
	case 4:
		name = "Acquire"
		ask = func() ([]limit.Decision, error) {
			slot, d, err := inFlight.Acquire(ctx, key, 1)
			if slot != nil {
				defer slot.Release()
			}
			return alone(d, err)
		}
		within *= 2 // the slot is also released
	default:
		name, ask = "AllowN", func() ([]limit.Decision, error) { return alone(one.AllowN(ctx, key, 1+random.Int64N(3))) }
	}
	ds, took, err := timed(within, ask)
	if took > within+loadSlack {
		t.Errorf("%s of %s took %v, the deadline is %v", name, one.Name(), took, tr.deadline)
	}
	switch {
	case err == nil:
		for _, d := range ds {
			all.tiers[d.Tier].Add(1)
		}
		if d := ds[0]; name == "AllowN" && d.Degraded() && one.OutagePolicy() != tiered.Approximate && d.Allowed != (one.OutagePolicy() == tiered.Allow) {
			t.Errorf("%s: policy %v, decided %+v", one.Name(), one.OutagePolicy(), d)
		}
	case tr.endedBy(ctx, err):
		all.ended.Add(1)
	default:
		t.Errorf("%s of %s: %v; its context: %v", name, one.Name(), err, ctx.Err())
	}
}

// endedBy reports whether an error is that of a call's own context. The limiter may return this error before the
// context ends, if Redis could no longer charge the call before the context's deadline. It knows Redis's clock only
// to within its own deadline, because that depends on how quick Redis's answers are.
func (tr *trial) endedBy(ctx context.Context, err error) bool {
	until, limited := ctx.Deadline()
	return ctx.Err() != nil && errors.Is(err, ctx.Err()) ||
		limited && errors.Is(err, context.DeadlineExceeded) && !time.Now().Before(until.Add(-tr.deadline))
}
