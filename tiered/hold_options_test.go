package tiered

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// With LifeOfRule, holds last for the HoldLife of their rule, in Redis and in the process, whichever call makes
// or extends them. The same is true of rules made by WithLimit.
func TestHoldsLastAsLongAsTheirRuleSays(t *testing.T) {
	ctx, clock := context.Background(), newVirtual()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), VirtualClock(clock.now))
	const life = 90 * time.Second
	base := newRule(t, l, "r", limit.PerDay(10), HoldLife(life), Unsettled(GiveBack))
	if base.HoldLife() != life {
		t.Errorf("HoldLife is %v", base.HoldLife())
	}
	plan, err := base.WithLimit(limit.PerDay(100))
	if err != nil {
		t.Fatal(err)
	}
	for name, hold := range map[string]func(r *Rule, key string) (*Hold, error){
		"Hold": func(r *Rule, key string) (*Hold, error) { h, _, err := r.Hold(ctx, key, 10, LifeOfRule); return h, err },
		"HoldUpTo": func(r *Rule, key string) (*Hold, error) {
			h, _, err := r.HoldUpTo(ctx, key, 10, LifeOfRule)
			return h, err
		},
		"TakeAll": func(r *Rule, key string) (*Hold, error) {
			g, _, err := l.TakeAll(ctx, Request{Rule: r, Key: key, Cost: 10, Hold: LifeOfRule})
			if err != nil {
				return nil, err
			}
			return g[0].Hold, nil
		},
		"HoldAll": func(r *Rule, key string) (*Hold, error) {
			h, _, err := l.HoldAll(ctx, LifeOfRule, Request{Rule: r, Key: key, Cost: 10})
			if err != nil {
				return nil, err
			}
			return h[0], nil
		},
		"Extend": func(r *Rule, key string) (*Hold, error) {
			h, _, err := r.Hold(ctx, key, 10, time.Second)
			if err == nil {
				err = h.Extend(ctx, LifeOfRule)
			}
			return h, err
		},
	} {
		for which, r := range map[string]*Rule{"base": base, "plan": plan} {
			key := name + which
			began := l.now()
			h, err := hold(r, key)
			if err != nil || h == nil {
				t.Fatalf("%s, %s: %+v, %v", name, which, h, err)
			}
			if h.ends.Load() != began+int64(life) {
				t.Errorf("%s, %s: the hold ends after %v", name, which, time.Duration(h.ends.Load()-began))
			}
			all := r.Limit().Quota()
			clock.advance(life - time.Millisecond)
			if got := left(t, r, key); got != all-10 {
				t.Errorf("%s, %s: %d of %d units are free just before its end", name, which, got, all)
			}
			clock.advance(time.Second)
			if got := left(t, r, key); got != all {
				t.Errorf("%s, %s: %d of %d units are free after its end", name, which, got, all)
			}
		}
	}
}

// LifeOfRule is an error for a rule without HoldLife, and charges nothing.
func TestHoldsOfARuleWithoutHoldLife(t *testing.T) {
	ctx := context.Background()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	r := newRule(t, l, "r", limit.PerHour(100))
	request := Request{Rule: r, Key: "k", Cost: 1, Hold: LifeOfRule}
	h := mustHold(t, r, "other", 1, time.Minute)
	defer h.Cancel(ctx)
	for name, call := range map[string]func() error{
		"Hold":    func() error { _, _, err := r.Hold(ctx, "k", 1, LifeOfRule); return err },
		"TakeAll": func() error { _, _, err := l.TakeAll(ctx, request); return err },
		"HoldAll": func() error { _, _, err := l.HoldAll(ctx, LifeOfRule, request); return err },
		"Extend":  func() error { return h.Extend(ctx, LifeOfRule) },
	} {
		if err := call(); !errors.Is(err, limit.ErrInvalidHold) || !strings.Contains(err.Error(), `rule "r" has no HoldLife`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := left(t, r, "k"); got != 100 {
		t.Errorf("%d units are free, want 100", got)
	}
	if _, err := l.AllowAll(ctx, request); !errors.Is(err, limit.ErrInvalidHold) || !strings.Contains(err.Error(), "the rule's HoldLife") {
		t.Errorf("AllowAll: %v", err)
	}
}

// A HoldLife that is out of range, or that no hold of the rule can have, is rejected when the rule is made.
func TestInvalidLivesOfHolds(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	for text, c := range map[string]struct {
		limit   limit.Limit
		options []RuleOption
	}{
		"HoldLife of 0s, must be between 1ms and 24h": {limit.PerHour(1), []RuleOption{HoldLife(0)}},
		"HoldLife of 24h0m1s":                         {limit.PerHour(1), []RuleOption{HoldLife(24*time.Hour + time.Second)}},
		"HoldLife of -1ns":                            {limit.PerHour(1), []RuleOption{HoldLife(LifeOfRule)}},
		"HoldLife cannot be combined with the limit":  {limit.Concurrent(1), []RuleOption{HoldLife(time.Minute)}},
		"Unsettled cannot be combined with the limit": {limit.Concurrent(1), []RuleOption{Unsettled(GiveBack)}},
		"1/concurrent, which has no window":           {limit.Concurrent(1), []RuleOption{Unsettled(Keep)}},
		"CountDenied and a HoldLife of 1m0s":          {limit.PerHour(1), []RuleOption{Use(limit.FixedWindow()), CountDenied(), HoldLife(time.Minute)}},
	} {
		if _, err := l.Rule("r", c.limit, c.options...); !errors.Is(err, limit.ErrInvalidOption) || !strings.Contains(err.Error(), text) {
			t.Errorf("want %q: %v", text, err)
		}
	}
}
