package tiered

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local/ledger"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// Law 12: settlements that wait for a lost master of a Cluster do not delay those for other masters, however many
// wait. Close makes the settlements for the other masters.
func TestLaw12SettlementsDoNotWaitForALostMaster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2, "--cluster-require-full-coverage", "no")
	client := cluster.Client(t)
	for what, makes := range map[string]func(*Limiter){
		"in the background": func(l *Limiter) {
			if !l.sendWaiting(t.Context(), false) {
				t.Error("nothing waits for the lost master")
			}
		},
		"Close": func(l *Limiter) { _ = l.Close() }, // returns the error that the instance could not leave the fleet
	} {
		t.Run(what, func(t *testing.T) {
			prefix := redistest.Prefix()
			l, others := newLimiterOn(t, client, prefix), newLimiterOn(t, client, prefix)
			redistest.Eventually(t, "Redis decides", func() bool { return l.State() == Healthy && others.State() == Healthy })
			r := newRule(t, l, "r", limit.PerHour(1000), Use(limit.SlidingLog()))
			other := newRule(t, others, "r", limit.PerHour(1000), Use(limit.SlidingLog()))
			lost, kept := keysOf(t, cluster.Nodes()[0], l)
			var waiting []settlement
			for i := range 3 * settledAtOnce {
				waiting = append(waiting, settlement{Hold: mustHold(t, r, lost[i%len(lost)], 1, time.Hour)})
			}
			waiting = append(waiting, settlement{Hold: mustHold(t, r, kept[0], 50, time.Hour), used: 30})
			cluster.Nodes()[0].Pause()
			defer cluster.Nodes()[0].Resume()
			l.shardOf(&waiting[0].key).Breaker.ForceOpen(errors.New("the master is lost"))

			l.holds.mu.Lock()
			l.holds.waiting = waiting
			l.holds.mu.Unlock()
			r.counters.holds.waiting.Add(int64(len(waiting)))
			makes(l)
			if d := mustAllow(t, other, kept[0], 1); d.Remaining != 1000-30-1 {
				t.Errorf("30 of 50 units were used, and 1 now: %+v", d)
			}
		})
	}
}

// If Redis has lost a hold, the units that were used beyond it are charged exactly as by ChargeUsed: all of them,
// whether or not they fit, and with the present time.
func TestWhatALostHoldUsedInAdditionIsCharged(t *testing.T) {
	ctx, clock := context.Background(), newVirtual()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), VirtualClock(clock.now))
	for _, a := range limit.Algorithms() {
		r := newRule(t, l, a.Name(), limit.PerHour(1000), Use(a))
		hold := mustHold(t, r, "k", 10, time.Hour)
		if err := r.Reset(ctx, "k"); err != nil {
			t.Fatal(err)
		}
		same := func(when string) {
			t.Helper()
			if got, want := left(t, r, "k"), left(t, r, "twin"); got != want {
				t.Errorf("%v: %d units are free %s, want %d", a, got, when, want)
			}
		}
		mustAllow(t, r, "k", 950)
		mustAllow(t, r, "twin", 950)
		clock.advance(20 * time.Minute)
		mustSettle(t, hold, 10+900)
		if err := r.ChargeUsed(ctx, "twin", 900); err != nil {
			t.Fatal(err)
		}
		same("at once")
		for range 4 {
			clock.advance(15 * time.Minute)
			same("later")
		}
		if c := l.Stats().Holds; c.Open != 0 || c.Unsettled != 0 {
			t.Errorf("%v: %+v", a, c)
		}
	}
}

// Law 7: the number of settlements that wait for a lost master of a Cluster is bounded, and leaves room for those
// of other masters.
func TestLaw7SettlementsForALostMasterAreBounded(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, "--cluster-require-full-coverage", "no")
	l := newLimiterOn(t, cluster.Client(t), redistest.Prefix(), Deadline(5*time.Second))
	redistest.Eventually(t, "Redis decides", func() bool { return l.State() == Healthy })
	r := newRule(t, l, "r", limit.PerHour(1000), Use(limit.SlidingLog()))
	lost, kept := keysOf(t, cluster.Nodes()[0], l)
	hold := mustHold(t, r, kept[0], 50, time.Hour)
	k := l.key(lost[0])
	k.hold = l.newHolding(time.Hour)
	cluster.Nodes()[0].Pause()
	defer cluster.Nodes()[0].Resume()
	l.shardOf(&k).Breaker.ForceOpen(errors.New("the master is lost"))
	for range maxSettlements {
		l.holds.put(l, r.cancelling(&k, 1))
	}
	if c := l.Stats().Holds; c.Unsettled != maxSettlements || c.Lost != 0 {
		t.Fatalf("%+v", c)
	}
	l.holds.put(l, r.cancelling(&k, 1))
	if c := l.Stats().Holds; c.Unsettled != maxSettlements || c.Lost != 1 {
		t.Errorf("one more for the lost master: %+v", c)
	}
	l.holds.put(l, settlement{Hold: hold, used: 30})
	redistest.Eventually(t, "that for another master is made", func() bool { return peek(t, r, kept[0]).Remaining == 970 })
	redistest.Eventually(t, "no more wait", func() bool {
		l.holds.mu.Lock()
		defer l.holds.mu.Unlock()
		return l.holds.pending[l.shardOf(&hold.key)] == 0
	})
	if c := l.Stats().Holds; c.Unsettled != maxSettlements || c.Lost != 1 {
		t.Errorf("afterwards: %+v", c)
	}
}

// ending is a hook that calls a function after each command, while one is set.
type ending struct {
	watching
	end atomic.Pointer[context.CancelFunc]
}

func (e *ending) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if end := e.end.Load(); end != nil {
			(*end)()
		}
		return err
	}
}

// awaitSending adds waiting settlements without waking the background goroutine, which put would do.
func awaitSending(r *Rule, settlements int) {
	l := r.limiter
	key := l.key("k")
	key.hold = l.newHolding(time.Hour)
	l.holds.mu.Lock()
	defer l.holds.mu.Unlock()
	for range settlements {
		l.holds.waiting = append(l.holds.waiting, r.cancelling(&key, 1))
	}
	r.counters.holds.waiting.Add(int64(settlements))
}

// Law 12: Close stops sending settlements when its time is over, however many wait, even if Redis answers.
func TestLaw12CloseSendsSettlementsForALimitedTime(t *testing.T) {
	t.Parallel()
	client, hook := redistest.Shared(t).Client(t), new(ending)
	client.AddHook(hook)
	l := newLimiterOn(t, client, redistest.Prefix())
	const all = 10 * settledAtOnce
	awaitSending(newRule(t, l, "r", limit.PerHour(1000)), all)
	within, cancel := context.WithCancel(t.Context())
	hook.end.Store(&cancel)
	l.closeHolds(within)
	if c := l.Stats().Holds; c.Unsettled != 0 || c.Settled > all/2 {
		t.Errorf("of %d settlements: %+v", all, c)
	}
}

// A settlement that comes when nothing waits any more is sent at once, like the first.
func TestEachSettlementIsSent(t *testing.T) {
	t.Parallel()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	r := newRule(t, l, "r", limit.PerHour(1000))
	for i := range 3 {
		l.holds.put(l, settlement{Hold: mustHold(t, r, "k", 10, time.Hour), used: 1})
		redistest.Eventually(t, "the settlement is made", func() bool {
			return l.Stats().Holds.Settled == int64(i+1) && !l.holds.areWaiting()
		})
	}
}

// Law 12: if Close begins while the background is sending settlements, it does not wait for all of them. Close
// sends the rest itself, for as long as its time lasts.
func TestLaw12CloseTakesSettlementsOver(t *testing.T) {
	t.Parallel()
	client, hook := redistest.Shared(t).Client(t), new(ending)
	client.AddHook(hook)
	l := newLimiterOn(t, client, redistest.Prefix())
	const all = 10 * settledAtOnce
	awaitSending(newRule(t, l, "r", limit.PerHour(1000)), all)
	begins := context.CancelFunc(func() {
		l.holds.mu.Lock()
		defer l.holds.mu.Unlock()
		l.holds.ended = true
	})
	hook.end.Store(&begins)
	if left := l.sendWaiting(t.Context(), false); !left || l.Stats().Holds.Unsettled < all/2 {
		t.Errorf("the background leaves %+v", l.Stats().Holds)
	}
	sent := l.Stats().Holds
	if left := l.sendWaiting(t.Context(), false); !left || l.Stats().Holds != sent {
		t.Errorf("the background has taken settlements from Close: %+v, %+v", sent, l.Stats().Holds)
	}
	if l.closeHolds(t.Context()); l.Stats().Holds.Settled != all {
		t.Errorf("once Close has sent the rest: %+v", l.Stats().Holds)
	}
}

// Law 12: a settlement that Close has given up counts as lost, not as waiting, and is not made afterwards.
func TestLaw12SettlementsThatCloseGivesUpAreLost(t *testing.T) {
	t.Parallel()
	l := newLimiterOn(t, redistest.Start(t).Client(t), redistest.Prefix())
	r := newRule(t, l, "r", limit.PerHour(1000))
	h := mustHold(t, r, "k", 10, time.Hour)
	h.settledFrom = math.MaxInt64
	l.holds.put(l, settlement{Hold: h})
	l.holds.mu.Lock()
	h.settledFrom = l.now() + int64(time.Millisecond)
	l.holds.mu.Unlock()
	l.shard.Breaker.ForceOpen(errors.New("Redis is lost"))
	l.closeHolds(t.Context())
	given := l.Stats().Holds
	redistest.Eventually(t, "Redis decides again", func() bool { return l.State() != Outage })
	left := l.sendWaiting(t.Context(), false)
	if c := l.Stats().Holds; left || c != given || c.Unsettled != 0 || c.Lost != 1 || c.Settled != 0 {
		t.Errorf("%+v, and once Redis was back %+v; any left: %v", given, c, left)
	}
}

// Units that Redis may hold although the outage policy decided are given up also if the call, which asked several
// masters, then ends with an error that says nothing about them.
func TestLaw12UnknownHoldsOfCallsThatFailAreGivenUp(t *testing.T) {
	t.Parallel()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	r := newRule(t, l, "r", limit.PerDay(10), Use(limit.SlidingLog()))
	q := r.ask("k", 3, lua.Take)
	q.key.hold = l.newHolding(time.Minute)
	if reply, err := q.shard().Decide(context.Background(), q.entry()); err != nil || reply.Granted != 3 {
		t.Fatalf("%+v, %v", reply, err)
	}
	q.key.hold.decidedWithout(remote.ErrNoAnswer)
	if h := q.newHold(nil, limit.ErrClosed, l.now()); h != nil {
		t.Errorf("%+v", h)
	}
	redistest.Eventually(t, "the units are given back", func() bool { return peek(t, r, "k").Remaining == 10 })
}

// Law 7: a hold whose context had ended before it was made has nothing to give up, since Redis was not asked. Clients
// that disconnect cannot fill the queue of settlements.
func TestLaw7HoldsThatWereNeverAskedForLeaveNothing(t *testing.T) {
	t.Parallel()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	r := newRule(t, l, "r", limit.PerHour(100))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := r.Hold(ctx, "k", 1, time.Minute); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, _, err := l.TakeAll(ctx, Request{Rule: r, Key: "k", Cost: 1, Hold: time.Minute}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if stats := l.Stats().Holds; stats != (HoldStats{}) {
		t.Errorf("holds that nobody has asked for: %+v", stats)
	}
}

// Law 3: a hold that was granted without Redis, which may still make it, is settled when Redis can no longer do so.
func TestLaw3UnknownHoldsThatAreSettledAtOnce(t *testing.T) {
	t.Parallel()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), Deadline(3*time.Second))
	r := newRule(t, l, "r", limit.PerDay(10), Use(limit.SlidingLog()))
	for key, end := range map[string]func(*Hold) error{
		"cancelled": func(h *Hold) error { return h.Cancel(t.Context()) },
		"settled":   func(h *Hold) error { return h.Settle(t.Context(), 0) },
	} {
		q := r.ask(key, 3, lua.Take)
		q.key.hold = l.newHolding(time.Hour)
		e := q.entry()
		q.key.hold.decidedWithout(remote.ErrNoAnswer)
		h := q.newHold(&limit.Decision{Allowed: true, Granted: 3, Tier: limit.TierFallback}, nil, l.now())
		if err := end(h); err != nil {
			t.Fatal(err)
		}
		if reply, err := q.shard().Decide(t.Context(), e); err != nil || reply.Granted != 3 { // it was on its way
			t.Fatalf("%+v, %v", reply, err)
		}
	}
	for _, key := range []string{"cancelled", "settled"} {
		redistest.Eventually(t, "the units are given back", func() bool { return peek(t, r, key).Remaining == 10 })
	}
}

// Law 3: what a hold used is charged once, also if the outage policy granted the hold because an answer was missing,
// and Redis then proves never to have made it. It is on this instance's record once, too.
func TestLaw3UnknownHoldsThatRedisNeverMadeAreCharged(t *testing.T) {
	t.Parallel()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	for policy, name := range []string{Keep: "kept", GiveBack: "given-back"} {
		r := newRule(t, l, name, limit.PerDay(100), Use(limit.SlidingLog()), Unsettled(UnsettledPolicy(policy)))
		for key, used := range map[string]int64{"cancelled": 0, "less": 10, "as held": 30, "more": 45} {
			q := r.ask(key, 30, lua.Take)
			q.key.hold = l.newHolding(time.Hour)
			var d limit.Decision
			q.fallback(&d, l.now(), remote.ErrNoAnswer)
			h := q.newHold(&d, nil, l.now())
			if h == nil || !h.unknown {
				t.Fatalf("%+v, %+v", h, d)
			}
			h.settledFrom = 0 // the question cannot reach Redis any more
			mustSettle(t, h, used)
			redistest.Eventually(t, "the settlement is made", func() bool { return !l.holds.areWaiting() })
			recorded := l.ledger.Used(&ledger.Account[*outage.Rule]{
				Hash: q.key.hash ^ r.inOutage.Salt, Window: r.limit.Window(), Quota: r.limit.Quota(), Owner: r.inOutage, Key: key,
			}, l.now())
			if charged := 100 - left(t, r, key); charged != used || recorded != used {
				t.Errorf("%s, %s: %d units are charged and %d on record, %d were used", name, key, charged, recorded, used)
			}
		}
	}
	if c := l.Stats().Holds; c.Open != 0 || c.Unsettled != 0 || c.Lost != 0 {
		t.Errorf("%+v", c)
	}
}

// Law 3: a request that was not sent because its caller's context ended has charged nothing. So what was used is
// charged: units used without a hold, and those of a hold that Redis then proves never to have made.
func TestLaw3WhatWasUsedIsChargedIfTheCallersTimeIsOver(t *testing.T) {
	t.Parallel()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	awaitHealthy(t, l)
	r := newRule(t, l, "r", limit.PerDay(100), Use(limit.SlidingLog()))
	over, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	r.chargeUsed(over, keyOf(l, "used"), 30)

	q := r.ask("held", 30, lua.Take)
	q.key.hold = l.newHolding(time.Hour)
	var d limit.Decision
	q.fallback(&d, l.now(), remote.ErrNoAnswer)
	h := q.newHold(&d, nil, l.now())
	h.settledFrom = 0 // the question cannot reach Redis any more
	if err := h.Settle(over, 30); err != nil {
		t.Fatal(err)
	}
	if err := l.ChargeRest(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"used", "held"} {
		if free := left(t, r, key); free != 70 {
			t.Errorf("%s: %d units are free with 30 used", key, free)
		}
	}
}

// Law 3: what a hold used is charged once, also if its answer was lost and Redis then does not know the hold that is
// extended: because it has not made it yet, or has forgotten it since it ended, or never makes it.
func TestLaw3UnknownHoldsThatAreExtended(t *testing.T) {
	t.Parallel()
	ctx, clock := t.Context(), newVirtual()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), VirtualClock(clock.now))
	r := newRule(t, l, "r", limit.PerDay(100), Use(limit.SlidingLog()))
	for _, key := range []string{"made late", "made at once", "never made"} {
		q := r.ask(key, 30, lua.Take)
		q.key.hold = l.newHolding(time.Minute)
		e := q.entry()
		var d limit.Decision
		q.fallback(&d, l.now(), remote.ErrNoAnswer)
		h := q.newHold(&d, nil, l.now())
		makes := func() {
			if reply, err := q.shard().Decide(ctx, e); err != nil || reply.Granted != 30 {
				t.Fatalf("%+v, %v", reply, err)
			}
		}
		extend := func() {
			if err := h.Extend(ctx, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		forgets := func() { // Redis forgets holds ten minutes after their end, when it makes the next one
			clock.advance(12 * time.Minute)
			if err := mustHold(t, r, key, 1, time.Minute).Cancel(ctx); err != nil {
				t.Fatal(err)
			}
		}
		switch key {
		case "made late":
			h.settledFrom = l.now() + int64(time.Second)
			extend()
			makes()
			forgets()
		case "made at once":
			makes()
			forgets()
			extend()
		default:
			extend()
			forgets()
		}
		mustSettle(t, h, 30)
		if free := left(t, r, key); free != 70 {
			t.Errorf("%s: %d units are free with 30 used", key, free)
		}
	}
}
