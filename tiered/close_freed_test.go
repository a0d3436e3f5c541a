package tiered

import (
	"log/slog"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// A closed limiter that nobody refers to any more is freed, also if there are units that it could not charge.
func TestLaw12AClosedLimiterIsFreed(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	defer client.Close()
	open := func() weak.Pointer[Limiter] {
		l, err := New(client, LedgerKeys(1000), RememberDenials(1000), Logger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if d := mustAllow(t, newRule(t, l, "r", limit.PerMinute(100)), "k", 1); !d.Allowed || d.Tier != limit.TierFallback {
			t.Fatalf("%+v", d)
		}
		h, d, err := newRule(t, l, "held", limit.PerMinute(1_000_000), Lease(10)).Hold(t.Context(), "k", 1, time.Minute)
		if err != nil || h == nil {
			t.Fatalf("%+v, %v", d, err)
		}
		if units, _ := l.ledger.Waiting(); units != 2 {
			t.Fatalf("%d units wait to be charged", units)
		}
		return weak.Make(l)
	}
	closed := open()
	redistest.Eventually(t, "the limiter is freed", func() bool {
		runtime.GC()
		return closed.Value() == nil
	})
}
