package tiered

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/inspect"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// A Cluster is often configured with a single address, such as a managed service's configuration
// endpoint. Open detects the Cluster, and Redis decides the keys of all masters.
func TestOpenFindsTheClusterBehindOneAddress(t *testing.T) {
	t.Parallel()
	cluster := redistest.SharedCluster(t)
	l := opened(t, &redis.UniversalOptions{Addrs: cluster.Addrs()[:1]}, slog.New(slog.DiscardHandler))
	r := newRule(t, l, "r", limit.PerHour(10))
	for i := range 200 {
		if d := mustAllow(t, r, fmt.Sprint("key-", i), 1); d.Tier != limit.TierRedis {
			t.Fatalf("key %d: %+v", i, d)
		}
	}
	if n := len(l.shards.InUse()); n != 3 || l.State() != Healthy {
		t.Errorf("%d masters, %v", n, l.State())
	}
}

// A client of one node of a Cluster cannot reach the keys of the other masters. The log and the live page say
// what to do, and the log repeats it only once in a while.
func TestAClientOfOneNodeOfAClusterIsReported(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	for _, addr := range cluster.Addrs() { // at most one of them has the fleet's key
		var log lockedBuffer
		started := time.Now()
		client := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { _ = client.Close() })
		l := newLimiterOn(t, client, "tl", Deadline(5*time.Second), Logger(slog.New(slog.NewTextHandler(&log, nil))))
		isTold(t, l, &log, started, "at start")
		r := newRule(t, l, "r", limit.PerHour(10))
		for i := range 100 {
			mustAllow(t, r, fmt.Sprint("key-", i), 1)
		}
		isTold(t, l, &log, started, "after 100 calls")
		redistest.Eventually(t, "the state has a reason", func() bool {
			mustAllow(t, r, "key-1", 1)
			mustAllow(t, r, "key-2", 1)
			mustAllow(t, r, "key-3", 1)
			s := inspect.Of(l).Snapshot()
			return s.State != "outage" || strings.Contains(s.Reason, "redis.NewClusterClient") && strings.Contains(s.Reason, "Cluster")
		})
	}
}

// A Cluster of one master is used like a single node, so its other addresses need not be known. The log says when
// slots have moved away from the master.
func TestAClusterOfOneMasterThatGrows(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 1)
	var log lockedBuffer
	l := opened(t, &redis.UniversalOptions{Addrs: cluster.Addrs()}, slog.New(slog.NewTextHandler(&log, nil)))
	r := newRule(t, l, "r", limit.PerHour(1000))
	if d := mustAllow(t, r, "k", 1); d.Tier != limit.TierRedis || l.shard == nil || strings.Contains(log.String(), "Cluster") {
		t.Errorf("%+v\n%s", d, log.String())
	}
	started := time.Now()
	fresh := cluster.AddNode(t)
	cluster.MoveSlots(t, cluster.Nodes()[0], fresh, []int{int(l.keys.Slot(keyOf(l, "k").inRedis()))}, func() {})
	redistest.Eventually(t, "decisions of the slot miss", func() bool { return mustAllow(t, r, "k", 1).Tier == limit.TierFallback })
	redistest.Eventually(t, "that is told", func() bool { return strings.Contains(log.String(), "redis.NewClusterClient") })
	isTold(t, l, &log, started, "when slots have moved")
}

// A node of a Cluster refuses calls with keys of several slots, even if it has all these slots. Calls and groups
// are therefore divided by slot, and Redis decides all keys.
func TestAClusterOfOneMasterDecidesManyKeys(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 1)
	client := redis.NewClient(&redis.Options{Addr: cluster.Addrs()[0]})
	t.Cleanup(func() { _ = client.Close() })
	for name, l := range map[string]*Limiter{
		"Open": opened(t, &redis.UniversalOptions{Addrs: cluster.Addrs()}, slog.New(slog.DiscardHandler)),
		"New":  newLimiterOn(t, client, redistest.Prefix(), Deadline(5*time.Second)),
	} {
		r := newRule(t, l, name, limit.PerHour(2))
		key := func(i int) string { return fmt.Sprint("key-", i) }
		both := func(cost int64) []limit.Decision {
			ds, err := l.AllowAll(t.Context(), Request{Rule: r, Key: key(1), Cost: cost}, Request{Rule: r, Key: key(2), Cost: 1})
			if err != nil || ds[0].Degraded() || ds[1].Degraded() {
				t.Fatalf("%s: %+v, %v", name, ds, err)
			}
			return ds
		}
		if ds := both(1); !ds[0].Allowed || !ds[1].Allowed {
			t.Errorf("%s: %+v", name, ds)
		}
		// One unit is free, so that no denial is remembered, and Redis is asked.
		if ds := both(2); ds[0].Allowed || ds[1].Allowed || !ds[1].HeldBack {
			t.Errorf("%s: %+v", name, ds)
		}
		if d := mustAllow(t, r, key(2), 1); !d.Allowed {
			t.Errorf("%s: what was held back was charged: %+v", name, d)
		}
		requests := make([]Request, MaxTogether)
		for i := range requests {
			requests[i] = Request{Rule: r, Key: key(10 + i), Cost: 1}
		}
		for i, want := range []bool{true, true, false} {
			ds, err := l.AllowEach(t.Context(), requests...)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range ds {
				if d.Allowed != want || d.Degraded() {
					t.Fatalf("%s, request %d: %+v", name, i, d)
				}
			}
		}
	}
}

func opened(t *testing.T, options *redis.UniversalOptions, logger *slog.Logger) *Limiter {
	t.Helper()
	l, err := Open(options, Deadline(5*time.Second), Logger(logger))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// isTold checks that the log says that the client is the wrong one and what to do. The log must not repeat that
// for each call since the given time.
func isTold(t *testing.T, l *Limiter, log *lockedBuffer, since time.Time, when string) {
	t.Helper()
	l.log.flush(time.Minute)
	lines, most := 0, 1+int(time.Since(since)/quietEvery)
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "level=WARN") && strings.Contains(line, `msg="tierlimit: the Redis client`) && strings.Contains(line, "redis.NewClusterClient") && strings.Contains(line, "IsClusterMode") {
			lines++
		}
	}
	if lines < 1 || lines > most {
		t.Errorf("%s it is told %d times, want 1 to %d:\n%s", when, lines, most, log.String())
	}
}
