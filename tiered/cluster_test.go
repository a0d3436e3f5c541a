package tiered

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"

	"github.com/tierlimit/tierlimit/internal/outage"
)

// Law 11 for a part of a Cluster: a master without a replica dies, or hangs. Its keys are approximated until the
// master is back, and then settle. Units that were granted meanwhile are charged once. Callers of other keys are
// not affected.
//
// The test does not depend on the machine's speed: the deadline is far longer than a call takes even on a busy
// machine. The additional time that a call may take is measured, by plain commands to the same masters.
func TestLaw11AMasterOfThreeIsLost(t *testing.T) {
	t.Parallel()
	const deadline = 2 * time.Second
	for _, c := range []struct {
		name       string
		begin, end func(*redistest.Server)
		after      State // the state once Redis is back: a master that has lost its memory settles for a window
	}{
		{"killed", (*redistest.Server).Kill, (*redistest.Server).Restart, Settling},
		{"hung", (*redistest.Server).Pause, (*redistest.Server).Resume, Healthy},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cluster := redistest.StartCluster(t, 3, "--cluster-require-full-coverage", "no", "--cluster-node-timeout", "2000")
			var changes states
			var log lockedBuffer
			l := newLimiterOn(t, cluster.Client(t), "tl", Deadline(deadline), RememberDenials(0),
				OnStateChange(changes.add), Logger(slog.New(slog.NewTextHandler(&log, nil))))
			r := newRule(t, l, "r", limit.PerDay(1000), Use(limit.SlidingLog()))
			master := cluster.Nodes()[1]
			lost, kept := keysOf(t, master, l)

			plain := startPinging(t, cluster.Nodes()[0], cluster.Nodes()[2])
			traffic := startAsking(r, slices.Concat(lost, kept))
			traffic.awaitTier(t, lost, limit.TierRedis)
			traffic.awaitTier(t, kept, limit.TierRedis)
			c.begin(master)
			traffic.awaitTier(t, lost, limit.TierFallback)
			redistest.Eventually(t, "the master counts as lost", func() bool { return l.State() == Outage })
			before := traffic.asked(kept)
			redistest.Eventually(t, "the others go on", func() bool { return traffic.asked(kept) > before+500 })
			if l.State() != Outage || !l.Degraded() {
				t.Errorf("it is %v in the outage", l.State())
			}
			c.end(master)
			redistest.Eventually(t, "it is back", func() bool { return l.State() == c.after })
			traffic.awaitTier(t, lost, limit.TierRedis)
			traffic.end()
			stall := plain.end()
			redistest.Eventually(t, "all is charged", func() bool { return !slices.ContainsFunc(l.shards.InUse(), (*outage.Shard).Owes) })

			of := traffic.seen
			for _, key := range kept {
				a := of[key]
				// Where other programs use the processors, one of the masters, or a thread of this process, may stand
				// still for seconds, without a plain command that waits. That is rare. If the lost master held up
				// others, all calls would be slow until it counts as lost, which takes three trips.
				byRedis, all := a.tiers[limit.TierRedis], traffic.asked([]string{key})
				if byRedis < all-2 || a.tiers[limit.TierFallback] > 0 || a.err != nil {
					t.Errorf("%s, which the master did not hold: decisions by tier %v, error %v; want Redis's only", key, a.tiers, a.err)
				}
				// A call waits for the trip in flight and then for its own, and each of them may stall.
				slow := slices.DeleteFunc(a.took, func(took time.Duration) bool { return took <= deadline/4+3*stall })
				if len(slow) > 2 {
					t.Errorf("%s, which the master did not hold: decisions took %v, a plain command %v at most", key, slow, stall)
				}
				checkCharged(t, r, key, a)
			}
			t.Logf("%d decisions about keys that the master did not hold; a plain command took %v at most", traffic.asked(kept), stall)
			for _, key := range lost {
				a := of[key]
				if a.err != nil || a.tiers[limit.TierFallback] == 0 {
					t.Errorf("%s: error %v, decisions by tier %v", key, a.err, a.tiers)
				}
				checkCharged(t, r, key, a)
			}
			told := changes.all()
			if len(told) > 0 && told[0] == Settling {
				told = told[1:] // a master that does not answer may count as too slow before it counts as lost
			}
			if len(told) < 2 || told[0] != Outage || told[1] != Settling || told[len(told)-1] != c.after {
				t.Errorf("told of %v, want outage, settling, and %v at last", told, c.after)
			}
			l.log.flush(time.Minute)
			if text := log.String(); !strings.Contains(text, "master="+master.Addr()) || strings.Contains(text, cluster.Nodes()[0].Addr()) {
				t.Errorf("the log does not say which master it was, and only that:\n%s", text)
			}
		})
	}
}

// checkCharged checks that what a key's caller was granted is charged once. A call whose answer was lost is charged once
// or not at all (law 3).
func checkCharged(t *testing.T, r *Rule, key string, a *answers) {
	t.Helper()
	charged := unitsInRedis(t, r, key)
	if charged > a.granted || charged < a.granted-a.unsure {
		t.Errorf("%s: %d units charged, want the %d that were granted, or up to %d fewer", key, charged, a.granted, a.unsure)
	}
}

// A limiter that starts while a master is lost decides the keys of the other masters, and learns the size of the
// fleet from them. It divides the limits of the lost master's keys by that size.
func TestStartWithAMasterLost(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2, "--cluster-require-full-coverage", "no")
	cluster.Nodes()[0].Kill()
	client := cluster.Client(t)
	l := newLimiterOn(t, client, "tl")
	newLimiterOn(t, client, "tl")
	r := newRule(t, l, "r", limit.PerDay(1000))
	lost, kept := keysOf(t, cluster.Nodes()[0], l)
	if d := mustAllow(t, r, kept[0], 1); d.Tier != limit.TierRedis {
		t.Errorf("of a master that is there: %+v", d)
	}
	if d := mustAllow(t, r, lost[0], 1); d.Tier != limit.TierFallback {
		t.Errorf("of a master that is lost: %+v", d)
	}
	redistest.Eventually(t, "two instances", func() bool { return l.FleetSize() == 2 })
	if o := l.shardOf(keyOf(l, lost[0])).Outage(); o.Fleet != 2 || o.ColdStart == nil {
		t.Errorf("without the master: %+v", o)
	}
}

// While a slot moves, one key can have two rules whose values are on different masters. A group over both is
// decided without Redis, after Redis has answered that it cannot decide. That is no outage: Redis still decides
// the master's other keys.
func TestGroupsOfASlotThatMoves(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2)
	from, to := cluster.Nodes()[0], cluster.Nodes()[1]
	client := cluster.Client(t)
	l := newLimiterOn(t, client, "tl", RememberDenials(0))
	log := newRule(t, l, "log", limit.PerDay(1000), Use(limit.SlidingLog()))
	counter := newRule(t, l, "counter", limit.PerDay(1000), Use(limit.SlidingCounter(limit.DefaultBuckets, limit.Strict)))
	its, _ := keysOf(t, from, l)
	split, other := its[0], its[1]
	const groups = 20
	ask := func(want limit.Tier) {
		t.Helper()
		for range groups {
			ds, err := l.AllowAll(t.Context(), Request{Rule: log, Key: split, Cost: 1}, Request{Rule: counter, Key: split, Cost: 1})
			if err != nil || !ds[0].Allowed || !ds[1].Allowed || ds[0].Tier != want || ds[1].Tier != want {
				t.Fatalf("a group: %+v, %v; want both allowed by tier %v", ds, err, want)
			}
		}
		if d := mustAllow(t, log, other, 1); d.Tier != limit.TierRedis {
			t.Errorf("a key of another slot: %+v", d)
		}
	}
	ask(limit.TierRedis)
	slot := client.ClusterKeySlot(t.Context(), "{"+split+"}").Val()
	cluster.MoveSlots(t, from, to, []int{int(slot)}, func() { ask(limit.TierFallback) })
	ask(limit.TierRedis)
	if outages := l.Stats().Outages; outages > 0 {
		t.Errorf("Redis counted as lost %d times", outages)
	}
	redistest.Eventually(t, "all is charged", func() bool { return l.Stats().UnchargedUnits == 0 })
	for _, r := range []*Rule{log, counter} {
		if charged := unitsInRedis(t, r, split); charged != 3*groups {
			t.Errorf("%s: %d units charged, %d granted", r.Name(), charged, 3*groups)
		}
	}
}

// Laws 7 and 11: if a slot's master was told that the slot moves, and the other node was not, each sends commands for
// the slot's keys to the other. Only these keys are decided without Redis, and charged when the mistake is corrected.
func TestLaws7And11ASlotThatNoNodeDecides(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2)
	from, to := cluster.Nodes()[0], cluster.Nodes()[1]
	l := newLimiterOn(t, cluster.Client(t), "tl", RememberDenials(0), Deadline(2*time.Second))
	r := newRule(t, l, "r", limit.PerDay(1000), Use(limit.SlidingLog()))
	its, _ := keysOf(t, from, l)
	astray, other := its[0], its[1]
	id, err := to.Client(t).ClusterMyID(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	source := from.Client(t)
	slot := source.ClusterKeySlot(t.Context(), "{"+astray+"}").Val()
	say := func(args ...any) {
		t.Helper()
		if err := source.Do(t.Context(), append([]any{"CLUSTER", "SETSLOT", slot}, args...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	mustAllow(t, r, other, 1)
	say("MIGRATING", id)
	const calls = 4 // in a row, which would be an outage
	for range calls {
		if d := mustAllow(t, r, astray, 1); d.Tier != limit.TierFallback {
			t.Errorf("of the slot: %+v", d)
		}
	}
	if d := mustAllow(t, r, other, 1); d.Tier != limit.TierRedis || l.Stats().Outages > 0 {
		t.Errorf("of another slot: %+v; Redis counted as lost %d times", d, l.Stats().Outages)
	}
	say("STABLE")
	redistest.Eventually(t, "all is charged", func() bool { return l.Stats().UnchargedUnits == 0 })
	for key, want := range map[string]int64{astray: calls, other: 2} {
		if charged := unitsInRedis(t, r, key); charged != want {
			t.Errorf("%s: %d units charged, want %d", key, charged, want)
		}
	}
}

// A refund that needs two values, while their slot moves and they are on different nodes, is made when both have moved.
func TestRefundsOfASlotThatMoves(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2)
	from, to := cluster.Nodes()[0], cluster.Nodes()[1]
	client := cluster.Client(t)
	l := newLimiterOn(t, client, "tl", RememberDenials(0), Deadline(10*time.Second))
	r := newRule(t, l, "r", limit.PerDay(1000), Use(limit.SlidingLog()), Unsettled(GiveBack))
	its, _ := keysOf(t, from, l)
	key := its[0]
	hold, _, err := r.Hold(t.Context(), key, 1, time.Hour)
	if err != nil || hold == nil {
		t.Fatal(hold, err)
	}
	d := mustAllow(t, r, key, 5)
	slot := client.ClusterKeySlot(t.Context(), "{"+key+"}").Val()
	refunded := make(chan error, 1)
	cluster.MoveSlots(t, from, to, []int{int(slot)}, func() {
		go func() { refunded <- r.Refund(t.Context(), key, &d, 5) }()
		redistest.Eventually(t, "a node has refused the refund", func() bool {
			for _, node := range []*redistest.Server{from, to} {
				if info, err := node.Client(t).Info(t.Context(), "errorstats").Result(); err == nil && strings.Contains(info, "errorstat_TRYAGAIN") {
					return true
				}
			}
			return false
		})
	})
	if err := <-refunded; err != nil {
		t.Error(err)
	}
	if d := peek(t, r, key); d.Remaining != 999 {
		t.Errorf("%+v, want all but the unit held free", d)
	}
	if outages := l.Stats().Outages; outages > 0 {
		t.Errorf("Redis counted as lost %d times", outages)
	}
}

// asking runs one caller per key, who asks every 10 ms.
type asking struct {
	stop chan struct{}
	done sync.WaitGroup
	mu   sync.Mutex // guards seen
	seen map[string]*answers
}

// pinging runs one caller per server, who sends plain commands to it.
type pinging struct {
	stop    chan struct{}
	done    sync.WaitGroup
	mu      sync.Mutex // guards slowest
	slowest time.Duration
}

func startPinging(t *testing.T, servers ...*redistest.Server) *pinging {
	t.Helper()
	p := &pinging{stop: make(chan struct{})}
	for _, server := range servers {
		client := server.Client(t)
		p.done.Go(func() {
			ticker := time.NewTicker(10 * time.Millisecond)
			defer ticker.Stop()
			for {
				select {
				case <-p.stop:
					return
				case <-ticker.C:
				}
				started := time.Now()
				if err := client.Ping(context.Background()).Err(); err != nil {
					t.Error(err)
					return
				}
				p.mu.Lock()
				p.slowest = max(p.slowest, time.Since(started))
				p.mu.Unlock()
			}
		})
	}
	return p
}

// end stops the callers, and returns how long the slowest command took.
func (p *pinging) end() time.Duration {
	close(p.stop)
	p.done.Wait()
	return p.slowest
}

// answers has what the caller of one key has observed.
type answers struct {
	tiers   map[limit.Tier]int
	last    limit.Tier
	granted int64
	unsure  int64 // the part of granted that may not be charged: Redis was asked, and did not answer
	took    []time.Duration
	err     error
}

func startAsking(r *Rule, keys []string) *asking {
	a := &asking{stop: make(chan struct{}), seen: make(map[string]*answers)}
	for _, key := range keys {
		of := &answers{tiers: make(map[limit.Tier]int)}
		a.seen[key] = of
		a.done.Go(func() {
			ticker := time.NewTicker(10 * time.Millisecond)
			defer ticker.Stop()
			for {
				select {
				case <-a.stop:
					return
				case <-ticker.C:
				}
				closed := r.limiter.shardOf(keyOf(r.limiter, key)).Breaker.Closed()
				started := time.Now()
				d, err := r.Allow(context.Background(), key)
				took := time.Since(started)
				a.mu.Lock()
				of.tiers[d.Tier]++
				of.last, of.granted, of.took = d.Tier, of.granted+d.Granted, append(of.took, took)
				if closed && d.Degraded() {
					of.unsure += d.Granted
				}
				if err != nil {
					of.err = err
				}
				a.mu.Unlock()
			}
		})
	}
	return a
}

func (a *asking) end() { close(a.stop); a.done.Wait() }

// awaitTier waits until the newest decision about each key comes from the tier.
func (a *asking) awaitTier(t *testing.T, keys []string, tier limit.Tier) {
	t.Helper()
	before := a.asked(keys)
	redistest.Eventually(t, fmt.Sprint("decisions by ", tier), func() bool {
		if a.asked(keys) < before+10*len(keys) {
			return false
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, key := range keys {
			if a.seen[key].last != tier {
				return false
			}
		}
		return true
	})
}

func (a *asking) asked(keys []string) (decisions int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, key := range keys {
		for _, n := range a.seen[key].tiers {
			decisions += n
		}
	}
	return decisions
}

// keysOf returns some keys that the master holds, and some that other masters hold.
func keysOf(t *testing.T, master *redistest.Server, l *Limiter) (its, others []string) {
	t.Helper()
	for i := range 1000 {
		key := fmt.Sprint("user", i)
		switch addr, _ := l.shardOf(keyOf(l, key)).Location(); {
		case addr == "":
			t.Fatal("the Cluster's masters are not known")
		case addr == master.Addr() && len(its) < 8:
			its = append(its, key)
		case addr != master.Addr() && len(others) < 16:
			others = append(others, key)
		}
	}
	if len(its) < 8 || len(others) < 16 {
		t.Fatalf("the master is said to have %d of 1000 keys, the others %d", len(its), len(others))
	}
	return its, others
}

func peek(t *testing.T, r *Rule, key string) limit.Decision {
	t.Helper()
	d, err := r.Peek(context.Background(), key, 1)
	if err != nil || d.Tier != limit.TierRedis {
		t.Fatalf("peek at %q: %+v, %v", key, d, err)
	}
	return d
}

// unitsInRedis returns the units of a key that Redis counts. While the limiter settles, a peek shows no more free units
// than this instance's share of the limit has, and a share is rounded. The policy Allow asks Redis alone.
func unitsInRedis(t *testing.T, r *Rule, key string) int64 {
	t.Helper()
	asked, err := r.limiter.PrepareRule(r.Name(), r.Limit(), Use(r.Algorithm()), OnOutage(Allow))
	if err != nil {
		t.Fatal(err)
	}
	return r.Limit().Quota() - peek(t, asked, key).Remaining
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Keys that share hash tags are still decided independently, on all masters, and one call of the script takes
// several keys.
func TestHashTagsOnACluster(t *testing.T) {
	t.Parallel()
	const tags, users, quota, tries = 6, 300, 5, 8
	cluster := redistest.StartCluster(t, 3)
	l := newLimiterOn(t, cluster.Client(t), "tl", Deadline(5*time.Second), RememberDenials(0), HashTags(tags))
	r := newRule(t, l, "r", limit.PerDay(quota), Use(limit.SlidingLog()))
	var granted [users]atomic.Int64
	var asking sync.WaitGroup
	for try := range tries {
		for user := range users {
			asking.Go(func() {
				d, err := r.Allow(context.Background(), fmt.Sprint("user ", user))
				if err != nil || d.Tier != limit.TierRedis {
					t.Errorf("try %d: %+v, %v", try, d, err)
				}
				granted[user].Add(d.Granted)
			})
		}
	}
	asking.Wait()
	for user := range granted {
		if n := granted[user].Load(); n != quota {
			t.Errorf("user %d was granted %d, want %d", user, n, quota)
		}
	}
	calls := 0
	slots := make(map[string]bool)
	for i, node := range cluster.Nodes() {
		client := node.Client(t)
		keys := client.Keys(context.Background(), "tl:{%*}{user *}:r").Val()
		if len(keys) < users/6 {
			t.Errorf("master %d has %d of %d keys", i, len(keys), users)
		}
		for _, key := range keys {
			slots[key[:strings.Index(key, "}")]] = true
		}
		calls += redistest.DecisionCalls(t, client)
	}
	if len(slots) != tags {
		t.Errorf("keys are in the slots of %v, want %d tags", slots, tags)
	}
	if calls > users*tries/2 {
		t.Errorf("%v calls for %d decisions", calls, users*tries)
	}
}

// A Cluster's client that asks a node that hangs which master has which slots asks another one soon. Otherwise the
// instance would learn seconds later than others that a replica has taken over, and use its share of the limit
// meanwhile, while the others use all of it.
func TestLaw11ANodeThatHangsIsNotAskedForLong(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	open := func(deadline, timeout time.Duration) *redis.Client {
		l, err := Open(&redis.UniversalOptions{Addrs: cluster.Addrs(), ReadTimeout: timeout}, Deadline(deadline), Logger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		master, err := l.client.(*redis.ClusterClient).MasterForKey(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		return master
	}
	master := open(50*time.Millisecond, 0)
	for _, c := range []struct{ deadline, set, want time.Duration }{
		{3 * time.Second, 0, 3 * time.Second}, // a call may take as long as it is given
		{50 * time.Millisecond, 2 * time.Second, 2 * time.Second},
	} {
		if timeout := open(c.deadline, c.set).Options().ReadTimeout; timeout != c.want {
			t.Errorf("deadline %v, ReadTimeout %v: a node has %v to answer, want %v", c.deadline, c.set, timeout, c.want)
		}
	}
	for _, node := range cluster.Nodes() {
		node.Pause()
	}
	asked := time.Now()
	if err := master.ClusterShards(context.Background()).Err(); err == nil {
		t.Error("a node that hangs has answered")
	}
	if took := time.Since(asked); took > 4*time.Second {
		t.Errorf("the client has waited for %v for a node that hangs", took)
	}
	for _, node := range cluster.Nodes() {
		node.Resume()
	}
}
