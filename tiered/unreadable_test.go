package tiered

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Requests for a key that cannot be read are decided by the outage policy, and the breaker stays
// closed. The log names the rule and the remedy, but not the key; and the remedy works.
func TestAnUnreadableKeyIsResetByItsOwner(t *testing.T) {
	client, ctx := redistest.Shared(t).Client(t), context.Background()
	var log bytes.Buffer
	l := newLimiterOn(t, client, "unreadable", RememberDenials(0), Logger(slog.New(slog.NewTextHandler(&log, nil))))
	r := newRule(t, l, "search", limit.PerHour(10), OnOutage(Deny))
	mustAllow(t, r, "alice", 1)
	client.Set(ctx, "unreadable:{alice}:search", "\x01"+strings.Repeat("\x00", 14), time.Hour)
	for range 50 {
		if d := mustAllow(t, r, "alice", 1); d.Tier != limit.TierFallback || d.Allowed {
			t.Fatalf("%+v", d)
		}
	}
	if d := mustAllow(t, r, "bob", 1); d.Tier != limit.TierRedis || !d.Allowed || l.Degraded() {
		t.Errorf("another key: %+v, degraded: %v", d, l.Degraded())
	}
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
