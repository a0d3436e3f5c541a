package tiered

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// If a key cannot be read, the outage policy decides about it, and the breaker stays closed. The log names the
// rule and the remedy, but not the key. The remedy works.
func TestAnUnreadableKeyIsResetByItsOwner(t *testing.T) {
	client, prefix, ctx := redistest.Shared(t).Client(t), redistest.Prefix(), context.Background()
	var log lockedBuffer
	l := newLimiterOn(t, client, prefix, RememberDenials(0), Logger(slog.New(slog.NewTextHandler(&log, nil))))
	r := newRule(t, l, "search", limit.PerHour(10), OnOutage(Deny))
	mustAllow(t, r, "alice", 1)
	client.Set(ctx, prefix+":{alice}:search", "\x01"+strings.Repeat("\x00", 14), time.Hour)
	for range 50 {
		if d := mustAllow(t, r, "alice", 1); d.Tier != limit.TierFallback || d.Allowed {
			t.Fatalf("%+v", d)
		}
	}
	if d := mustAllow(t, r, "bob", 1); d.Tier != limit.TierRedis || !d.Allowed || l.Degraded() {
		t.Errorf("another key: %+v, degraded: %v", d, l.Degraded())
	}
	l.log.flush(time.Minute)
	if text := log.String(); !strings.Contains(text, `rule \"search\"`) || !strings.Contains(text, "Rule.Reset") || strings.Contains(text, "alice") {
		t.Errorf("the log says: %s", text)
	}
	if err := r.Reset(ctx, "alice"); err != nil {
		t.Fatal(err)
	}
	if d := mustAllow(t, r, "alice", 1); d.Tier != limit.TierRedis || d.Remaining != 9 {
		t.Errorf("after a reset: %+v", d)
	}
}

// Laws 3 and 7: a key that cannot be read does not affect the other keys of the same AllowEach. Redis decides
// about these, and charges them once.
func TestLaw3AllowEachBesideAnUnreadableKey(t *testing.T) {
	server, prefix := redistest.Shared(t), redistest.Prefix()
	client, ctx := server.Client(t), context.Background()
	l := newLimiterOn(t, server.Client(t), prefix)
	r := newRule(t, l, "search", limit.PerMinute(100))
	client.Set(ctx, prefix+":{alice}:search", "damaged", time.Minute)
	d, err := l.AllowEach(ctx, Request{Rule: r, Key: "alice", Cost: 1}, Request{Rule: r, Key: "bob", Cost: 5})
	if err != nil {
		t.Fatal(err)
	}
	if !d[0].Allowed || d[0].Tier != limit.TierFallback {
		t.Errorf("the unreadable key: %+v", d[0])
	}
	if !d[1].Allowed || d[1].Tier != limit.TierRedis || d[1].Remaining != 95 {
		t.Errorf("the other key: %+v", d[1])
	}
	if units := l.Stats().UnchargedUnits; units > 1 {
		t.Errorf("%d units are to be charged later, want at most that of the unreadable key", units)
	}
}

// Law 7: slots of a key that cannot be read are lost after their TTL. Slots of other keys, which are renewed in
// the same trips, are kept.
func TestLaw7SlotsBesideAnUnreadableKey(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		const ttl = 300 * time.Millisecond
		client, prefix := bubble.Client(t), redistest.Prefix()
		r := newRule(t, newLimiterOn(t, client, prefix), "jobs", limit.Concurrent(5), SlotTTL(ttl))
		lost, kept := mustAcquire(t, r, "a", 1), mustAcquire(t, r, "b", 1)
		synctest.Wait() // lets renewals end, because the stand-in runs other commands in the middle of the script
		client.Set(t.Context(), prefix+":{a}:jobs:slots", "damaged", time.Minute)
		redistest.Eventually(t, "the slot of the unreadable key is lost", func() bool { return !lost.Held() })
		for until := time.Now().Add(2 * ttl); time.Now().Before(until); time.Sleep(time.Millisecond) {
			if !kept.Held() {
				t.Fatal("the other slot is lost, too")
			}
			if lost.Held() {
				t.Fatal("the lost slot is held again")
			}
		}
	})
}
