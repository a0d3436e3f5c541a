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

// Laws 11 and 12: a process that is closed while it settles first charges in Redis what it granted
// in the outage. Otherwise its successor would be granted a second quota.
func TestLaws11And12CloseCharges(t *testing.T) {
	t.Parallel()
	server, prefix := redistest.Start(t), redistest.Prefix()
	l := newLimiterOn(t, server.Client(t), prefix, LedgerKeys(4000))
	const quota, keys = 10, 400 // of which a batch charges 64
	r := newRule(t, l, "r", limit.PerHour(quota))
	l.shard.Breaker.ForceOpen(errors.New("lost"))
	for i := range keys {
		if d := mustAllow(t, r, fmt.Sprint(i), quota); !d.Allowed || !d.Degraded() {
			t.Fatalf("%+v", d)
		}
	}
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

// A process that is closed while Redis is lost says that what it granted will not be charged, and
// Close does not wait for that.
func TestCloseSaysWhatIsNotCharged(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var log strings.Builder
	l := newLimiterOn(t, server.Client(t), redistest.Prefix(), Deadline(50*time.Millisecond), Logger(slog.New(slog.NewTextHandler(&log, nil))))
	r := newRule(t, l, "r", limit.PerHour(10))
	server.Kill()
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
}
