package tiered

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Laws 11 and 12: a process that is closed while it settles first charges in Redis the units that it granted in
// the outage. Otherwise its successor would get a second quota.
func TestLaws11And12CloseCharges(t *testing.T) {
	t.Parallel()
	server, prefix := redistest.Start(t), redistest.Prefix()
	l := newLimiterOn(t, server.Client(t), prefix, LedgerKeys(4000))
	const quota, keys = 10, 400 // a batch charges 64 keys
	r := newRule(t, l, "r", limit.PerHour(quota))
	server.Pause()
	l.shard.Breaker.ForceOpen(errors.New("lost"))
	for i := range keys {
		if d := mustAllow(t, r, fmt.Sprint(i), quota); !d.Allowed || !d.Degraded() {
			t.Fatalf("%+v", d)
		}
	}
	server.Resume()
	redistest.Eventually(t, "Redis is back", func() bool { return l.shard.Breaker.Closed() })
	started := time.Now()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(started); took > l.config.deadline+closeWithin {
		t.Errorf("Close took %v", took)
	}
	if units := l.Stats().UnchargedUnits; units != 0 {
		t.Errorf("%d units were not charged, by the counter", units)
	}
	successor := newRule(t, newLimiterOn(t, server.Client(t), prefix), "r", limit.PerHour(quota))
	again := 0
	for i := range keys {
		d, err := successor.Peek(context.Background(), fmt.Sprint(i), 1)
		if err != nil || d.Degraded() {
			t.Fatalf("%+v, %v", d, err)
		}
		if d.Remaining > 0 {
			again++
		}
	}
	if again > 0 {
		t.Errorf("%d of %d keys are granted their limit again", again, keys)
	}
}

// A process that is closed while Redis is lost logs that the units it granted will not be charged, and Close does
// not wait for Redis.
func TestCloseSaysWhatIsNotCharged(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		var log strings.Builder
		l := newLimiterOn(t, bubble.Client(t), redistest.Prefix(), Deadline(50*time.Millisecond), Logger(slog.New(slog.NewTextHandler(&log, nil))))
		r := newRule(t, l, "r", limit.PerHour(10))
		bubble.Late.Store(int64(time.Second))
		l.shard.Breaker.ForceOpen(errors.New("lost"))
		mustAllow(t, r, "k", 1)
		started := time.Now()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(started); took > chargeWithin {
			t.Errorf("Close took %v", took)
		}
		if !strings.Contains(log.String(), "could not be charged") || !strings.Contains(log.String(), "units=1") {
			t.Errorf("the log says nothing of it:\n%s", log.String())
		}
	})
}

// Units that were sent to Redis to be charged, but whose answer was lost, count as uncharged. When the limiter is
// closed, it logs their number.
func TestUnknownChargesAreUncharged(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		var log strings.Builder
		l := newLimiterOn(t, bubble.Client(t), redistest.Prefix(), Deadline(100*time.Millisecond), LedgerKeys(4000), Logger(slog.New(slog.NewTextHandler(&log, nil))))
		const keys = 400 // a batch charges 64 keys
		r := newRule(t, l, "r", limit.PerHour(10))
		l.shard.Breaker.ForceOpen(errors.New("lost"))
		for i := range keys {
			mustAllow(t, r, fmt.Sprint(i), 1)
		}
		redistest.Eventually(t, "it is being charged", func() bool { return l.Stats().ChargedBackUnits > 0 })
		bubble.Late.Store(int64(10 * time.Second))
		timeouts := l.Stats().Trips.Errors["timeout"]
		redistest.Eventually(t, "a trip fails", func() bool { return l.Stats().Trips.Errors["timeout"] > timeouts })
		redistest.Eventually(t, "each unit is charged or uncharged", func() bool {
			stats := l.Stats()
			return stats.UnchargedUnits > 0 && stats.UnchargedUnits+int64(stats.ChargedBackUnits) == keys
		})
		_ = l.Close()
		if want := fmt.Sprintf("units=%d\n", l.Stats().UnchargedUnits); !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, log.String())
		}
	})
}

// ChargeRest waits for a lost Redis until its context ends. When Redis is back, ChargeRest charges the units
// there, and waits no longer.
func TestChargeRest(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t), redistest.Prefix(), Deadline(500*time.Millisecond))
	r := newRule(t, l, "r", limit.PerHour(10))
	server.Kill()
	l.shard.Breaker.ForceOpen(errors.New("lost"))
	mustAllow(t, r, "k", 1)
	const brief, long = 300 * time.Millisecond, 30 * time.Second
	takes := func(what string, least, most, within time.Duration, want error) {
		t.Helper()
		started := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		if err := l.ChargeRest(ctx); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
		if took := time.Since(started); took < least || took > most {
			t.Errorf("%s: it took %v", what, took)
		}
	}
	takes("lost", brief, long/2, brief, context.DeadlineExceeded)
	if units := l.Stats().UnchargedUnits; units != 1 {
		t.Errorf("%d units are uncharged", units)
	}
	server.Restart()
	takes("back", 0, long/2, long, nil)
	if units := l.Stats().UnchargedUnits; units != 0 {
		t.Errorf("%d units are uncharged", units)
	}
	takes("charged", 0, long/2, long, nil)
	server.Kill()
	l.shard.Breaker.ForceOpen(errors.New("lost"))
	mustAllow(t, r, "k", 1)
	_ = l.Close()
	takes("closed", 0, long/2, long, nil)
}

// ChargeRest also waits for settlements, in the same way.
func TestChargeRestWaitsForSettlements(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t), redistest.Prefix(), Deadline(500*time.Millisecond))
	r := newRule(t, l, "r", limit.PerHour(10))
	hold := mustHold(t, r, "k", 5, time.Hour)
	server.Pause()
	l.shard.Breaker.ForceOpen(errors.New("lost"))
	mustSettle(t, hold, 2)
	brief, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := l.ChargeRest(brief); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Redis is lost: %v", err)
	}
	if c := l.Stats().Holds; c.Unsettled != 1 || c.Settled != 0 {
		t.Errorf("Redis is lost: %+v", c)
	}
	server.Resume()
	if err := l.ChargeRest(t.Context()); err != nil {
		t.Errorf("Redis is back: %v", err)
	}
	if c := l.Stats().Holds; c.Unsettled != 0 || c.Settled != 1 || c.Lost != 0 {
		t.Errorf("Redis is back: %+v", c)
	}

	hold = mustHold(t, r, "k", 5, time.Hour)
	server.Pause()
	defer server.Resume()
	l.shard.Breaker.ForceOpen(errors.New("lost"))
	mustSettle(t, hold, 2)
	ended := make(chan error)
	go func() { ended <- l.ChargeRest(context.Background()) }()
	_ = l.Close()
	if err := <-ended; err != nil && !errors.Is(err, limit.ErrClosed) { // nil: Close finished first
		t.Errorf("closed: %v", err)
	}
}
