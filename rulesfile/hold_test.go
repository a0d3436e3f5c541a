package rulesfile

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// The file sets how long holds last, also for plans, and a change of the file changes it.
func TestHoldLife(t *testing.T) {
	f := newRulesFile(t, "rules: {tokens: {limit: 100/1m, hold: 90s, plans: {gold: 1000/1m}}}\nkeys: {k: gold}")
	rules := f.load(newLimiter(t))
	tokens := rule(t, rules, "tokens")
	check := func(want time.Duration) {
		t.Helper()
		for _, key := range []string{"k", "other"} {
			if got := tokens.For(key).HoldLife(); got != want {
				t.Errorf("holds of %q last %v, want %v", key, got, want)
			}
		}
	}
	hold := func() error {
		h, _, err := tokens.For("k").Hold(context.Background(), "k", 200, tiered.LifeOfRule)
		if h != nil {
			must(t, h.Cancel(context.Background()))
		}
		return err
	}
	check(90 * time.Second)
	must(t, hold())
	f.write("rules: {tokens: {limit: 100/1m, hold: 5m, plans: {gold: 1000/1m}}}\nkeys: {k: gold}")
	must(t, rules.Reload())
	check(5 * time.Minute)
	f.write("rules: {tokens: {limit: 100/1m, plans: {gold: 1000/1m}}}\nkeys: {k: gold}")
	must(t, rules.Reload())
	check(0)
	if err := hold(); !errors.Is(err, limit.ErrInvalidHold) {
		t.Errorf("held under a file that does not say how long: %v", err)
	}
}
