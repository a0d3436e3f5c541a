package tiered

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Laws 1 and 9: groups span two masters, one of which is paused and resumed again and again. All instances
// together grant exactly the limit of the key on the other master, including an instance that did not know the
// key before.
func TestLaw9GroupOverAHealthyAndAFlappingMaster(t *testing.T) {
	t.Parallel()
	const quota, flaps = 200, 2
	cluster := redistest.StartCluster(t, 3, "--cluster-require-full-coverage", "no", "--cluster-node-timeout", "2000")
	master, prefix := cluster.Nodes()[1], redistest.Prefix()
	var limiters []*Limiter
	var its, others []string
	for range 3 {
		// If an answer of the other master is late, that instance's share decides, and more than the limit is granted.
		// So the deadline is long. The breakers, which would open after three deadlines, are opened by force.
		l := newLimiterOn(t, cluster.Client(t), prefix)
		awaitHealthy(t, l)
		newRule(t, l, "r", limit.PerDay(quota), Use(limit.SlidingLog()))
		newRule(t, l, "larger", limit.PerDay(100_000), Use(limit.SlidingLog()))
		its, others = keysOf(t, master, l)
		limiters = append(limiters, l)
	}
	lost, kept := its[0], others[0]
	var groups, granted atomic.Int64
	stop := make(chan struct{})
	var callers sync.WaitGroup
	defer func() { close(stop); callers.Wait() }()
	start := func(l *Limiter) {
		r, larger := newRule(t, l, "r", limit.PerDay(quota), Use(limit.SlidingLog())), newRule(t, l, "larger", limit.PerDay(100_000), Use(limit.SlidingLog()))
		for range 4 {
			callers.Go(func() {
				for pace := time.NewTicker(20 * time.Millisecond); ; groups.Add(1) {
					select {
					case <-stop:
						return
					case <-pace.C:
					}
					ds, err := l.AllowAll(context.Background(), Request{Rule: r, Key: kept, Cost: 1}, Request{Rule: larger, Key: lost, Cost: 1})
					if err != nil {
						t.Error(err)
						return
					}
					if ds[0].Allowed {
						granted.Add(1)
					}
				}
			})
		}
	}
	more := func(what string, n int64) {
		t.Helper()
		until := groups.Load() + n
		redistest.Eventually(t, what, func() bool { return groups.Load() >= until })
	}
	all := func(what string, is State) {
		t.Helper()
		redistest.Eventually(t, what, func() bool {
			for _, l := range limiters[1:] {
				if l.State() != is {
					return false
				}
			}
			return limiters[0].State() == is
		})
	}
	for _, l := range limiters[1:] { // the first limiter starts during the outage
		start(l)
	}
	mustAllow(t, limiters[0].MustRule("larger", limit.PerDay(100_000), Use(limit.SlidingLog())), lost, 1)
	more("groups are decided", 20)
	for flap := range flaps {
		master.Pause()
		if flap == 0 {
			start(limiters[0])
		}
		for _, l := range limiters {
			l.shardOf(keyOf(l, lost)).Breaker.ForceOpen(errors.New("lost"))
		}
		all("the master counts as lost", Outage)
		more("groups are decided without it", quota/2)
		master.Resume()
		all("it is back", Healthy)
		more("groups are decided with it", quota/2)
	}
	if n := granted.Load(); n > quota || n < quota*9/10 {
		t.Errorf("%d groups got a unit of a key of which %d are free, on a master that was always there", n, quota)
	}
}
