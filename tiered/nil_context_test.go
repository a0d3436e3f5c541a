package tiered

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Law 6: a nil context is a mistake of the caller, and has an error of its own wherever a call takes a context.
func TestLaw6NilContexts(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	rate, dry, slots := newRule(t, l, "rate", limit.PerHour(1000)), newRule(t, l, "dry", limit.PerHour(1000), DryRun()), newRule(t, l, "slots", limit.Concurrent(4))
	one := Request{Rule: rate, Key: "k", Cost: 1}
	d := mustAllow(t, rate, "k", 1)
	hold, _, err := rate.Hold(t.Context(), "k", 10, time.Minute)
	if err != nil || hold == nil {
		t.Fatal(err)
	}
	grants := Grants{{Hold: hold}, {}}
	var none context.Context
	for name, call := range map[string]func() error{
		"AllowN":        func() error { _, err := rate.AllowN(none, "k", 1); return err },
		"AllowUpTo":     func() error { _, err := rate.AllowUpTo(none, "k", 1); return err },
		"Peek":          func() error { _, err := rate.Peek(none, "k", 1); return err },
		"Wait":          func() error { _, err := rate.Wait(none, "k", 1); return err },
		"Refund":        func() error { return rate.Refund(none, "k", &d, 1) },
		"Reset":         func() error { return rate.Reset(none, "k") },
		"ChargeUsed":    func() error { return rate.ChargeUsed(none, "k", 1) },
		"Hold":          func() error { _, _, err := rate.Hold(none, "k", 1, time.Minute); return err },
		"Settle":        func() error { return hold.Settle(none, 1) },
		"Cancel":        func() error { return hold.Cancel(none) },
		"Extend":        func() error { return hold.Extend(none, time.Minute) },
		"Grants.Settle": func() error { return grants.Settle(none, 1) },
		"Grants.End":    func() error { return grants.End(none) },
		"Grants.Extend": func() error { return grants.Extend(none, time.Minute) },
		"Acquire":       func() error { _, _, err := slots.Acquire(none, "k", 1); return err },
		"AcquireWait":   func() error { _, err := slots.AcquireWait(none, "k", 1); return err },
		"AllowEach":     func() error { _, err := l.AllowEach(none, one); return err },
		"AllowAll":      func() error { _, err := l.AllowAll(none, one); return err },
		"a dry run":     func() error { _, err := l.AllowAll(none, one, Request{Rule: dry, Key: "k", Cost: 1}); return err },
		"TakeAll":       func() error { _, _, err := l.TakeAll(none, one); return err },
		"HoldAll":       func() error { _, _, err := l.HoldAll(none, time.Minute, one); return err },
		"ChargeRest":    func() error { return l.ChargeRest(none) },
	} {
		if err := call(); !errors.Is(err, limit.ErrNilContext) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := grants.Settle(t.Context(), 10); err != nil {
		t.Errorf("the hold has changed: %v", err)
	}
}
