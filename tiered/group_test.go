package tiered

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local"
)

// Laws 1 and 9: a group spans two masters, one of which is lost. The healthy master decides about its part, and
// enforces its limit exactly. This instance's share decides about the part of the lost master. If either part is
// denied, neither is charged.
func TestLaw9GroupOverAHealthyAndALostMaster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, "--cluster-require-full-coverage", "no", "--cluster-node-timeout", "2000")
	l := newLimiterOn(t, cluster.Client(t), redistest.Prefix(), Deadline(2*time.Second), RememberDenials(0))
	r := newRule(t, l, "r", limit.PerDay(10), Use(limit.SlidingLog()))
	larger := newRule(t, l, "larger", limit.PerDay(1000), Use(limit.SlidingLog()))
	closed := newRule(t, l, "closed", limit.PerDay(1000), OnOutage(Deny))
	master := cluster.Nodes()[1]
	its, others := keysOf(t, master, l)
	lost, kept := its[0], others[0]
	for _, key := range []string{lost, kept} {
		mustAllow(t, larger, key, 1)
	}
	master.Pause()
	defer master.Resume()
	redistest.Eventually(t, "the master counts as lost", func() bool { mustAllow(t, larger, lost, 1); return l.State() == Outage })

	all := func(requests ...Request) []limit.Decision {
		t.Helper()
		ds, err := l.AllowAll(context.Background(), requests...)
		if err != nil {
			t.Fatal(err)
		}
		return ds
	}
	free := func() int64 { // the units left of the share
		a := accountOf(larger, lost)
		units, _ := l.ledger.Free(&a, l.shardOf(keyOf(l, lost)).Outage(), l.now(), 1)
		return units
	}
	before := free()
	for i := range int64(10) {
		ds := all(Request{Rule: r, Key: kept, Cost: 1}, Request{Rule: larger, Key: lost, Cost: 1})
		if d := ds[0]; !d.Allowed || d.Tier != limit.TierRedis || d.ChargedAt == 0 || d.Remaining != 9-i {
			t.Fatalf("group %d, of the master that is there: %+v", i, d)
		}
		if d := ds[1]; !d.Allowed || !d.Degraded() || d.ChargedAt != 0 {
			t.Fatalf("group %d, of the lost master: %+v", i, d)
		}
	}
	ds := all(Request{Rule: r, Key: kept, Cost: 1}, Request{Rule: larger, Key: lost, Cost: 1})
	if ds[0].Allowed || ds[1].Allowed || ds[1].Granted != 0 || ds[0].RetryAfter == 0 || ds[1].RetryAfter != 0 {
		t.Errorf("above the limit: %+v", ds)
	}
	if n := before - free(); n != 10 {
		t.Errorf("10 groups took %d of the lost key's share", n)
	}

	ds = all(Request{Rule: larger, Key: kept, Cost: 1}, Request{Rule: closed, Key: lost, Cost: 1})
	if ds[0].Allowed || ds[0].Granted != 0 || ds[0].ChargedAt != 0 || ds[1].Allowed {
		t.Errorf("denied by policy: %+v", ds)
	}
	if n := 1000 - peek(t, larger, kept).Remaining; n != 1 {
		t.Errorf("%d units of the other key are charged, want the 1 from before", n)
	}
}

// If the last slot of a group denies, the charges in the other slots are given back. The decisions show no
// charge, so nothing can be refunded a second time.
func TestLaw9NothingIsLeftToRefundOfADeniedGroup(t *testing.T) {
	t.Parallel()
	l := newLimiterOn(t, redistest.SharedCluster(t).Client(t), redistest.Prefix(), RememberDenials(0), Deadline(time.Second))
	r := newRule(t, l, "r", limit.PerDay(10), Use(limit.SlidingLog()))
	for _, full := range []string{"a", "b"} {
		mustAllow(t, r, full, 10)
		var ds []limit.Decision
		for _, other := range []string{"c", "d"} {
			var err error
			if ds, err = l.AllowAll(context.Background(), Request{Rule: r, Key: other, Cost: 4}, Request{Rule: r, Key: full, Cost: 1}); err != nil {
				t.Fatal(err)
			}
			if d := ds[0]; d.Allowed || d.Granted != 0 || d.ChargedAt != 0 {
				t.Errorf("%s held back by %s: %+v", other, full, d)
			}
			if n := peek(t, r, other).Remaining; n != 10 {
				t.Errorf("%s: %d units are free, want 10", other, n)
			}
		}
	}
}

// Units that a denied group gives back are free at once, as after a refund: this instance's own record drops
// them, a denial that they caused is forgotten, and a caller that waits for the units gets them.
func TestLaw9WhatADeniedGroupGivesBackIsFree(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2)
	l := newLimiterOn(t, cluster.Client(t), redistest.Prefix(), Deadline(5*time.Second))
	r := newRule(t, l, "r", limit.PerDay(10), Use(limit.SlidingLog()))
	master := cluster.Nodes()[1]
	its, others := keysOf(t, master, l)
	full, free := its[0], others[0]
	mustAllow(t, r, full, 10)
	master.Pause()
	var both sync.WaitGroup
	both.Go(func() {
		ds, err := l.AllowAll(t.Context(), Request{Rule: r, Key: free, Cost: 4}, Request{Rule: r, Key: full, Cost: 1})
		if err != nil || ds[0].Allowed || !ds[0].HeldBack || !ds[1].Denied() {
			t.Errorf("the group: %+v, %v", ds, err)
		}
	})
	redistest.Eventually(t, "the first slot is charged", func() bool { return peek(t, r, free).Remaining == 6 })
	both.Go(func() {
		if d, err := r.Wait(t.Context(), free, 10); err != nil || !d.Allowed {
			t.Errorf("who waited: %+v, %v", d, err)
		}
	})
	redistest.Eventually(t, "the denial is remembered, and the caller waits for hours", func() bool {
		l.lines.mu.Lock()
		defer l.lines.mu.Unlock()
		queues := l.lines.byKey[local.HeldKey{Rule: r.name, Key: free}]
		return len(queues) == 1 && time.Until(queues[0].next) > time.Hour
	})
	master.Resume()
	served := make(chan struct{})
	go func() { both.Wait(); close(served) }()
	redistest.Eventually(t, "who waits is served", func() bool {
		select {
		case <-served:
			return true
		default:
			return false
		}
	})
	if n := recorded(r, free); n != 10 {
		t.Errorf("this instance's record has %d units, want the 10 of the caller that waited", n)
	}
}

// If a caller abandons a group over several slots of a Cluster half-way, the charges that Redis has confirmed are
// given back.
func TestLaw9GroupGivenUpHalfWay(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2)
	prefix := redistest.Prefix()
	l := newLimiterOn(t, cluster.Client(t), prefix, Deadline(5*time.Second), RememberDenials(0))
	newLimiterOn(t, cluster.Client(t), prefix)
	for _, s := range l.shards.InUse() { // hears of the other instance: a single one makes trips of its own
		if err := s.Heartbeat(5 * time.Second); err != nil {
			t.Fatal(err)
		}
	}
	r := newRule(t, l, "r", limit.PerDay(10), Use(limit.SlidingLog()))
	master := cluster.Nodes()[1]
	its, others := keysOf(t, master, l)
	for _, key := range []string{its[0], others[0]} {
		mustAllow(t, r, key, 1) // now the slots are known, and connections are open
	}
	ctx, giveUp := context.WithCancel(context.Background())
	defer giveUp()
	gaveUp := make(chan error, 1)
	master.Pause()
	leader := make(chan error, 1)
	go func() { // leads the trip to that master: a leader finishes its trip before it can return
		_, err := r.Allow(context.Background(), its[1])
		leader <- err
	}()
	redistest.Eventually(t, "a trip is in flight", l.shards.HasWaiters)
	go func() {
		_, err := l.AllowAll(ctx, Request{Rule: r, Key: others[0], Cost: 4}, Request{Rule: r, Key: its[0], Cost: 4})
		gaveUp <- err
	}()
	redistest.Eventually(t, "the first slot is charged", func() bool { return peek(t, r, others[0]).Remaining == 5 })
	giveUp()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if n := peek(t, r, others[0]).Remaining; n != 9 {
		t.Errorf("%d units are free where Redis had answered, want 9", n)
	}
	master.Resume()
	if err := <-leader; err != nil {
		t.Error(err)
	}
	// Units whose charge was in flight may be charged once, or not at all.
	redistest.Eventually(t, "the other master answers", func() bool { d := peek(t, r, its[0]); return !d.Degraded() })
	if n := peek(t, r, its[0]).Remaining; n != 9 && n != 5 {
		t.Errorf("%d units are free where Redis had not answered, want 9 or 5", n)
	}
	if l.State() != Healthy {
		t.Errorf("state %v", l.State())
	}
}
