package tiered

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Law 4: if Redis hangs, Close takes at most the deadline plus one second, whatever time-outs the client has,
// even with calls in flight and open leases, holds and slots. Callers that wait meanwhile get their decisions in
// time.
func TestLaw4CloseOfAHungRedisIsBounded(t *testing.T) {
	t.Parallel()
	for _, on := range []struct {
		name   string
		start  func(t *testing.T) []*redistest.Server
		client func(addrs []string) redis.UniversalClient
	}{
		// These clients do not keep the deadlines of contexts: their time-outs are 5 s and more.
		{"one node", func(t *testing.T) []*redistest.Server {
			return []*redistest.Server{redistest.Start(t)}
		}, func(addrs []string) redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: addrs[0]})
		}},
		{"a Cluster", func(t *testing.T) []*redistest.Server {
			return redistest.StartCluster(t, 2).Nodes()
		}, func(addrs []string) redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
		}},
	} {
		t.Run(on.name, func(t *testing.T) {
			t.Parallel()
			servers := on.start(t)
			var addrs []string
			for _, s := range servers {
				addrs = append(addrs, s.Addr())
			}
			for _, inForce := range []string{"nothing", "leases", "holds", "slots"} {
				t.Run(inForce, func(t *testing.T) { closesInTime(t, on.client(addrs), servers, inForce) })
			}
		})
	}
}

// closesInTime pauses the servers, and lets them continue when the test has ended.
func closesInTime(t *testing.T, client redis.UniversalClient, servers []*redistest.Server, inForce string) {
	const (
		deadline = 50 * time.Millisecond
		slack    = 500 * time.Millisecond // a busy machine runs timers late, and cleans up slowly
	)
	t.Cleanup(func() { _ = client.Close() })
	l, err := New(client, Prefix(redistest.Prefix()), Deadline(deadline), LedgerKeys(1000), RememberDenials(1000), Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // in case the test ends before its own Close
	r := newRule(t, l, "r", limit.PerHour(1_000_000))
	redistest.Eventually(t, "Redis decides", func() bool { return mustAllow(t, r, "k", 1).Tier == limit.TierRedis })
	settle := putInForce(t, l, inForce)

	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			for {
				started := time.Now()
				_, err := r.Allow(context.Background(), "k")
				if took := time.Since(started); took > deadline+time.Second+slack {
					t.Errorf("a decision took %v", took)
				}
				if errors.Is(err, limit.ErrClosed) {
					return
				} else if err != nil {
					t.Error(err)
				}
			}
		})
	}
	redistest.Eventually(t, "Redis decides", func() bool { return mustAllow(t, r, "k", 1).Tier == limit.TierRedis })
	for _, s := range servers {
		s.Pause()
		t.Cleanup(s.Resume)
	}
	settle()               // Redis is no longer told of these settlements
	var late time.Duration // the delay of a bare timer
	began := time.Now()
	bare := make(chan struct{})
	time.AfterFunc(deadline+time.Second, func() { late = time.Since(began) - deadline - time.Second; close(bare) })
	_ = l.Close() // returns the error that the fleet could not be told
	took := time.Since(began)
	<-bare
	t.Logf("Close took %v; a bare timer was late by %v", took, late)
	if took > deadline+time.Second+slack+late {
		t.Errorf("Close took %v, with a deadline of %v", took, deadline)
	}
	callers.Wait()
}

// putInForce takes many leases, holds or slots, and returns a function that ends them without asking Redis.
func putInForce(t *testing.T, l *Limiter, what string) (end func()) {
	t.Helper()
	const keys = 200
	var ends []func()
	eachKey := func(take func(key string)) {
		for i := range keys {
			take(fmt.Sprint("key", i))
		}
	}
	switch what {
	case "leases":
		r := newRule(t, l, what, limit.PerHour(1_000_000), Lease(50))
		redistest.Eventually(t, "units are leased", func() bool {
			eachKey(func(key string) { mustAllow(t, r, key, 1) })
			return l.leases.Left() > 0
		})
	case "holds":
		r := newRule(t, l, what, limit.PerHour(1_000_000))
		eachKey(func(key string) {
			h, _, err := r.Hold(t.Context(), key, 10, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			ends = append(ends, func() { _ = h.Settle(context.Background(), 3) })
		})
	case "slots":
		r := newRule(t, l, what, limit.Concurrent(10))
		eachKey(func(key string) {
			if _, _, err := r.Acquire(t.Context(), key, 1); err != nil {
				t.Fatal(err)
			}
		})
	}
	return func() {
		var all sync.WaitGroup
		for _, f := range ends {
			all.Go(f)
		}
		all.Wait()
	}
}
