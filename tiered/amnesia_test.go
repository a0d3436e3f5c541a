package tiered

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Law 11: a Redis that has lost all its data grants no second quota. The units that this instance granted are
// charged again after the next use of each key. Until a window has passed, a request must also fit in this
// instance's share.
func TestLaw11FlushedRedisGrantsNoSecondQuota(t *testing.T) {
	t.Parallel()
	server, prefix := redistest.Start(t), redistest.Prefix()
	l := newLimiterOn(t, server.Client(t), prefix, Deadline(5*time.Second), RememberDenials(0))
	r := newRule(t, l, "r", limit.PerHour(100))
	mustAllow(t, r, "k", 80)
	mustAllow(t, r, "not used again", 80)
	if err := server.Client(t).FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "it is noticed", func() bool { return l.State() == Settling })
	if n := l.Stats().MemoryLosses; n != 1 {
		t.Errorf("%v losses of memory", n)
	}
	if d := mustAllow(t, r, "k", 5); !d.Allowed || d.Tier != limit.TierRedis {
		t.Fatalf("%+v", d)
	}
	if d := mustAllow(t, r, "k", 16); d.Allowed || d.Tier != limit.TierFallback {
		t.Fatalf("%+v", d)
	}
	redistest.Eventually(t, "it is charged", func() bool { return !l.shard.Owes() && l.Stats().ChargedBackUnits > 0 })
	mustAllow(t, r, "k", 1)
	redistest.Eventually(t, "nothing is to be charged again", func() bool { return !l.shard.Owes() })
	if k, other := peekFrom(t, server, prefix, r, "k"), peekFrom(t, server, prefix, r, "not used again"); k != 14 || other != 100 {
		t.Errorf("%d and %d remain in Redis, want 14 and 100", k, other)
	}
	if l.State() != Settling {
		t.Errorf("%v before a window has passed", l.State())
	}
}

// Law 11: after a failover to a replica that was cut off before this instance began, no second quota is granted.
// The replica has the generation, which an earlier instance made, but no heartbeat and no grants of this
// instance.
func TestLaw11FailoverToBeforeAnInstanceBegan(t *testing.T) {
	t.Parallel()
	server, prefix, ctx := redistest.Start(t), redistest.Prefix(), t.Context()
	client := server.Client(t)
	heartbeats := func() []string { return client.Keys(ctx, prefix+":*:heartbeats:*").Val() }
	newLimiterOn(t, client, prefix)
	others := heartbeats()
	l := newLimiterOn(t, server.Client(t), prefix, Deadline(5*time.Second), RememberDenials(0))
	r := newRule(t, l, "r", limit.PerHour(100))
	mustAllow(t, r, "k", 80)
	lost := slices.DeleteFunc(heartbeats(), func(key string) bool { return slices.Contains(others, key) })
	if len(lost) != 1 {
		t.Fatalf("%q, want the sequence of this instance's heartbeats", lost)
	}
	if err := client.Del(ctx, append(lost, prefix+":{k}:r")...).Err(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "it is noticed", func() bool { return l.State() == Settling })
	if d := mustAllow(t, r, "k", 21); d.Allowed {
		t.Errorf("%+v", d)
	}
	redistest.Eventually(t, "it is charged", func() bool { return !l.shard.Owes() && l.Stats().ChargedBackUnits > 0 })
	if k := peekFrom(t, server, prefix, r, "k"); k != 20 {
		t.Errorf("%d remain in Redis, want 20", k)
	}
}

// Law 11: Redis loses its memory, and is then lost itself before all instances have sent it another heartbeat, as in a
// crash loop. The shares are those of the fleet as it was before the loss.
func TestLaw11RedisIsLostRightAfterItsMemory(t *testing.T) {
	t.Parallel()
	const instances, quota = 6, 600
	server, prefix := redistest.Start(t), redistest.Prefix()
	var rules []*Rule
	for range instances {
		l := newLimiterOn(t, server.Client(t), prefix, Deadline(100*time.Millisecond))
		rules = append(rules, newRule(t, l, "r", limit.PerHour(quota)))
	}
	all := func(is func(l *Limiter) bool) func() bool {
		return func() bool { return !slices.ContainsFunc(rules, func(r *Rule) bool { return !is(r.limiter) }) }
	}
	redistest.Eventually(t, "all know of all", all(func(l *Limiter) bool { return l.FleetSize() == instances }))
	if err := server.Client(t).FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "all have noticed", all(func(l *Limiter) bool { return l.Stats().MemoryLosses == 1 }))
	server.Pause()
	if granted := grantedWithoutRedis(t, rules); granted > quota {
		t.Errorf("%d instances granted %d units of %d", instances, granted, quota)
	}
	server.Resume()
}

// Law 11: Redis is lost while the fleet starts, before the first instances have heard of the others. The shares
// are those of a fleet of the size that FleetSize sets.
func TestLaw11RedisIsLostWhileAFleetStarts(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) { // where a busy machine does not delay the start
		const instances, quota = 6, 600
		prefix := redistest.Prefix()
		var rules []*Rule
		for range instances {
			l := newLimiterOn(t, bubble.Client(t), prefix, Deadline(100*time.Millisecond), FleetSize(instances))
			rules = append(rules, newRule(t, l, "r", limit.PerHour(quota)))
			if size := l.FleetSize(); size > len(rules) {
				t.Errorf("the fleet of %d is said to have %d", len(rules), size)
			}
		}
		bubble.Late.Store(int64(time.Minute))
		if granted := grantedWithoutRedis(t, rules); granted > quota {
			t.Errorf("%d instances granted %d units of %d", instances, granted, quota)
		}
		bubble.Late.Store(0)
	})
}

// grantedWithoutRedis returns how many units of a new key all instances together grant in an outage.
func grantedWithoutRedis(t *testing.T, rules []*Rule) (units int64) {
	t.Helper()
	for _, r := range rules { // with heartbeats alone, the loss would be noticed later
		redistest.Eventually(t, "Redis counts as lost", func() bool { mustAllow(t, r, "other", 1); return r.limiter.Degraded() })
	}
	for _, r := range rules {
		for mustAllow(t, r, "key", 1).Allowed {
			units++
		}
	}
	return units
}
