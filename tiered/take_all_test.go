package tiered

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// takers has rules of all three kinds, and the keys to ask for.
type takers struct {
	limiter                 *Limiter
	rate, tokens, streams   *Rule
	rates, tokensOf, stream string // in a Redis slot each
}

func newTakers(t testing.TB, l *Limiter, policy OutagePolicy, streamTTL time.Duration) *takers {
	return &takers{
		limiter: l,
		rate:    newRule(t, l, "rate", limit.PerDay(100_000), Use(limit.FixedWindow()), OnOutage(policy)),
		tokens:  newRule(t, l, "tokens", limit.PerDay(1000), Use(limit.SlidingLog()), OnOutage(policy), Unsettled(GiveBack)),
		streams: newRule(t, l, "streams", limit.Concurrent(2), OnOutage(policy), SlotTTL(streamTTL)),
		rates:   "a", tokensOf: "b", stream: "c",
	}
}

// take takes one request, the given number of tokens, and one stream. It asks in a random order, because on a
// Cluster a later request may deny what an earlier one was granted. It returns the results in the order of the
// rules.
func (s *takers) take(tokens int64) (Grants, []limit.Decision, error) {
	requests := []Request{
		{Rule: s.rate, Key: s.rates, Cost: 1},
		{Rule: s.tokens, Key: s.tokensOf, Cost: tokens, Hold: time.Minute},
		{Rule: s.streams, Key: s.stream, Cost: 1},
	}
	order, asked := rand.Perm(len(requests)), make([]Request, len(requests))
	for to, from := range order {
		asked[to] = requests[from]
	}
	grants, decisions, err := s.limiter.TakeAll(context.Background(), asked...)
	if err != nil {
		return nil, nil, err
	}
	inOrder, decided := make(Grants, len(requests)), make([]limit.Decision, len(requests))
	for to, from := range order {
		decided[from] = decisions[to]
		if grants != nil {
			inOrder[from] = grants[to]
		}
	}
	if grants == nil {
		inOrder = nil
	}
	return inOrder, decided, nil
}

// left returns the free units of each rule, without this process's remembered denials.
func (s *takers) left(t testing.TB) string {
	t.Helper()
	free := func(r *Rule, key string) int64 {
		r.forgetDenial(keyOf(s.limiter, key).hash)
		d, err := r.Peek(context.Background(), key, 1)
		if err != nil || d.Degraded() {
			t.Fatalf("%s: %+v, %v", r.Name(), d, err)
		}
		return d.Remaining
	}
	return fmt.Sprint(free(s.rate, s.rates), free(s.tokens, s.tokensOf), free(s.streams, s.stream))
}

// Law 9: TakeAll charges, holds and acquires the units of all requests or of none, whichever of them is denied.
// One call ends all grants.
func TestLaw9TakeAll(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]redis.UniversalClient{
		"one node":  redistest.Shared(t).Client(t),
		"a Cluster": redistest.SharedCluster(t).Client(t),
	} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			l := newLimiterOn(t, client, redistest.Prefix(), Deadline(5*time.Second), RememberDenials(0))
			s := newTakers(t, l, Approximate, 10*time.Second)
			check := func(when, want string) {
				t.Helper()
				if got := s.left(t); got != want {
					t.Errorf("%s %s are free, want %s", when, got, want)
				}
			}
			must := func(tokens int64) Grants {
				t.Helper()
				g, ds, err := s.take(tokens)
				if err != nil || g == nil || !ds[0].Allowed || !ds[1].Allowed || !ds[2].Allowed {
					t.Fatalf("%+v, %+v, %v", g, ds, err)
				}
				if g[0] != (Grant{}) || g[1].Hold.Units() != tokens || g[1].Slot != nil || g[2].Hold != nil || !g[2].Slot.Held() {
					t.Fatalf("%+v", g)
				}
				return g
			}
			denied := func(tokens int64, by int) {
				t.Helper()
				before := s.left(t)
				for range 12 { // in different orders
					g, ds, err := s.take(tokens)
					if err != nil || g != nil {
						t.Fatalf("%+v, %+v, %v", g, ds, err)
					}
					for i, d := range ds {
						if d.Allowed || d.Granted != 0 || d.HeldBack == (i == by) || d.HeldBack == (d.RetryAfter > 0) {
							t.Errorf("request %d, denied by %d: %+v", i, by, d)
						}
					}
					check("after a denial", before)
				}
			}
			first := must(600)
			check("with the first", "99999 400 1")
			denied(401, 1)
			second := must(300)
			denied(100, 2)
			check("with the second", "99998 100 0")
			if err := second.Extend(ctx, time.Hour); err != nil {
				t.Error(err)
			}
			if err := first.Settle(ctx, 100); err != nil {
				t.Error(err)
			}
			check("after the first was settled", "99998 600 1")
			if err := first.Settle(ctx, 100); !errors.Is(err, limit.ErrHoldEnded) {
				t.Errorf("settled twice: %v", err)
			}
			if err := first.End(ctx); err != nil {
				t.Error(err)
			}
			if err := second.Settle(ctx, -1); !errors.Is(err, limit.ErrInvalidCost) || !second[2].Slot.Held() {
				t.Errorf("settled with -1: %v", err)
			}
			if err := second.End(ctx); err != nil || second[2].Slot.Held() {
				t.Error(err)
			}
			check("after the second was ended", "99998 900 2")
			if c := l.Stats().Holds; c.Open != 0 || c.Units != 0 || c.Unsettled != 0 || c.Lost != 0 {
				t.Errorf("%+v", c)
			}
		})
	}
}

// TakeAll takes one trip on a single node.
func TestTakeAllIsOneTrip(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	l := newLimiterOn(t, client, redistest.Prefix())
	s := newTakers(t, l, Approximate, time.Minute)
	before := l.Stats().Trips.Seconds.Count()
	g, ds, err := s.take(10)
	if err != nil || g == nil {
		t.Fatalf("%+v, %v", ds, err)
	}
	if trips := l.Stats().Trips.Seconds.Count() - before; trips != 1 {
		t.Errorf("%d trips", trips)
	}
	if err := g.End(context.Background()); err != nil {
		t.Error(err)
	}
}

// A rule on a dry run never denies the other requests, whatever its kind, and its grants end with theirs.
func TestTakeAllBesideDryRuns(t *testing.T) {
	ctx := context.Background()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	rate := newRule(t, l, "rate", limit.PerDay(10))
	tokens, streams := newRule(t, l, "tokens", limit.PerDay(10), DryRun()), newRule(t, l, "streams", limit.Concurrent(1), DryRun())
	take := func() (Grants, []limit.Decision) {
		t.Helper()
		g, ds, err := l.TakeAll(ctx, Request{Rule: tokens, Key: "k", Cost: 8, Hold: time.Minute},
			Request{Rule: rate, Key: "k", Cost: 4}, Request{Rule: streams, Key: "k", Cost: 1})
		if err != nil {
			t.Fatal(err)
		}
		return g, ds
	}
	first, ds := take()
	if first[0].Hold.Units() != 8 || !first[2].Slot.Held() || ds[0].WouldDeny || ds[2].WouldDeny {
		t.Fatalf("%+v, %+v", first, ds)
	}
	second, ds := take()
	if second[0].Hold.Units() != 0 || !second[2].Slot.Held() || !ds[0].WouldDeny || !ds[2].WouldDeny {
		t.Fatalf("%+v, %+v", second, ds)
	}
	if none, ds := take(); none != nil || !ds[0].HeldBack || !ds[1].Denied() || !ds[2].HeldBack {
		t.Fatalf("%+v, %+v", none, ds)
	}
	for _, g := range []Grants{first, second} {
		if err := g.Settle(ctx, 3); err != nil {
			t.Error(err)
		}
	}
	if n := left(t, tokens, "k"); n != 7 || l.Stats().Slots.Units != 0 {
		t.Errorf("%d tokens are free, %d streams held", n, l.Stats().Slots.Units)
	}
}

// Laws 3, 9 and 13: whichever answers are lost, in the end nothing is held, and settled units are charged once.
// That is true for groups in one slot of a Cluster and in several.
func TestLaw9TakeAllWithLostAnswers(t *testing.T) {
	t.Parallel()
	node, cluster := redistest.Shared(t), redistest.StartCluster(t, 3)
	for name, clients := range map[string][2]redis.UniversalClient{
		"one node":  {node.Client(t), node.Client(t)},
		"a Cluster": {cluster.Client(t), cluster.Client(t)},
	} {
		t.Run(name, func(t *testing.T) {
			lose, prefix, ttl := &losing{later: clients[1]}, redistest.Prefix(), 10*time.Minute // longer than the test, which notices leaks
			clients[0].AddHook(lose)
			l := newLimiterOn(t, clients[0], prefix, Deadline(20*time.Millisecond), RememberDenials(0))
			s := newTakers(t, l, Deny, ttl)
			watched := newTakers(t, newLimiterOn(t, clients[1], prefix, Deadline(5*time.Second), RememberDenials(0)), Deny, ttl)
			redistest.Eventually(t, "all nodes answer", func() bool {
				g, _, err := s.take(1)
				if err != nil {
					t.Fatal(err)
				}
				_ = g.End(context.Background())
				return g != nil
			})
			var taken, denied, used atomic.Int64
			lose.part.Store(80)
			var workers sync.WaitGroup
			for range 4 {
				workers.Go(func() {
					for start := time.Now(); taken.Load() < 150 || lose.lost.Load() < 40; {
						if time.Since(start) > time.Minute {
							t.Errorf("only %d were taken, as if something leaked", taken.Load())
							return
						}
						g, _, err := s.take(1 + rand.Int64N(5))
						switch {
						case err != nil:
							t.Error(err)
							return
						case g == nil:
							denied.Add(1)
							time.Sleep(time.Millisecond)
							continue
						}
						taken.Add(1)
						if rand.IntN(2) == 0 {
							_ = g.End(context.Background())
							continue
						}
						units := rand.Int64N(3)
						used.Add(units)
						if err := g.Settle(context.Background(), units); err != nil {
							t.Error(err)
						}
					}
				})
			}
			workers.Wait()
			lose.part.Store(0)
			lose.late.Wait()
			redistest.Eventually(t, "Redis has been told of everything", func() bool {
				c := l.Stats().Holds
				return l.State() == Healthy && c.Open == 0 && c.Unsettled == 0 && l.slots.table.Keys() == 0
			})
			var free int64
			defer func() {
				if t.Failed() {
					t.Logf("rate, tokens and streams left: %s; used %d, %+v", watched.left(t), used.Load(), l.Stats())
				}
			}()
			redistest.Eventually(t, "no stream is held, and the tokens are those that were used", func() bool {
				var rate, streams int64
				if _, err := fmt.Sscan(watched.left(t), &rate, &free, &streams); err != nil {
					t.Fatal(err)
				}
				return streams == 2 && free == max(0, 1000-used.Load())
			})
			k := keyOf(l, s.tokensOf)
			if n := clients[1].Exists(context.Background(), l.keys.Key("tokens", k.inRedis())+":holds").Val(); n != 0 {
				t.Error("a line of a hold is left")
			}
			t.Logf("%d taken, %d denied, %d answers lost, %d tokens used", taken.Load(), denied.Load(), lose.lost.Load(), used.Load())
		})
	}
}

// Law 11: in an outage, the policy of its rule decides about each request, and all or none are granted. Units
// that were granted without Redis are settled and released like all others.
func TestLaw11TakeAllWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t), redistest.Prefix(), Deadline(2*time.Second))
	s := newTakers(t, l, Approximate, 2*time.Second)
	strict := newRule(t, l, "strict", limit.Concurrent(4), OnOutage(Deny))
	kept, _, err := s.take(300)
	if err != nil || kept == nil {
		t.Fatal(err)
	}
	server.Kill()
	redistest.Eventually(t, "the outage is noticed", func() bool {
		mustAllow(t, s.rate, "other", 1)
		return l.State() == Outage
	})
	more, ds, err := s.take(200)
	if err != nil || more == nil || !ds[0].Degraded() || !ds[1].Degraded() || !ds[2].Degraded() {
		t.Fatalf("%+v, %+v, %v", more, ds, err)
	}
	for range 3 {
		if none, ds, err := s.take(200); err != nil || none != nil || ds[2].Allowed || !ds[2].Denied() || ds[1].Granted != 0 {
			t.Fatalf("a third stream: %+v, %+v, %v", none, ds, err)
		}
	}
	none, ds, err := l.TakeAll(context.Background(), Request{Rule: s.tokens, Key: s.tokensOf, Cost: 100, Hold: time.Minute}, Request{Rule: strict, Key: "k", Cost: 1})
	if err != nil || none != nil || !ds[1].Denied() {
		t.Errorf("of policy Deny: %+v, %+v, %v", none, ds, err)
	}
	if err := more.Settle(context.Background(), 150); err != nil {
		t.Error(err)
	}
	if err := kept.Settle(context.Background(), 250); err != nil {
		t.Error(err)
	}
	server.Restart() // with an empty memory
	redistest.Eventually(t, "what was used is charged there, and nothing is held", func() bool {
		tokens, err := s.tokens.Peek(context.Background(), s.tokensOf, 1)
		streams, err2 := s.streams.Peek(context.Background(), s.stream, 1)
		return err == nil && err2 == nil && tokens.Tier == limit.TierRedis && tokens.Remaining == 600 &&
			streams.Tier == limit.TierRedis && streams.Remaining == 2 && l.Stats().Holds.Unsettled == 0
	})
}

// TestHeldBackSlotsUnderAllow checks that slots which the policy Allow has granted, and which are given back because
// another limit denies, do not raise Remaining above the limit.
func TestHeldBackSlotsUnderAllow(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t), redistest.Prefix(), Deadline(2*time.Second))
	streams := newRule(t, l, "streams", limit.Concurrent(6), OnOutage(Allow))
	strict := newRule(t, l, "strict", limit.Concurrent(4), OnOutage(Deny))
	server.Kill()
	redistest.Eventually(t, "the outage is noticed", func() bool {
		_, _, err := strict.Acquire(context.Background(), "other", 1)
		return err == nil && l.State() == Outage
	})
	none, ds, err := l.TakeAll(context.Background(), Request{Rule: streams, Key: "k", Cost: 2}, Request{Rule: strict, Key: "k", Cost: 1})
	if err != nil || none != nil || !ds[0].HeldBack || ds[0].Remaining != 6 {
		t.Errorf("of policy Allow: %+v, %v", ds, err)
	}
}
