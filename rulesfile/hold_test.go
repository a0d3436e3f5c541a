package rulesfile

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// Holds from before a reload are settled under the limits of the new file, also those of plans and single keys. So they
// do not convert the key's state back to an algorithm that is no longer in use, after which free units would count as used.
func TestHoldsThroughAReload(t *testing.T) {
	const file = "rules: {tokens: {limit: %[1]d/1m, plans: {gold: %[1]d/1m, past: 50000/1m, early: 50000/1m, kept: %[1]d/1m, small: 50000/1m}, " +
		"keys: {own: %[1]d/1m, joins: 50000/1m, leaves: 50000/1m, renamed: early, moves: kept}}}\nkeys: {k: gold, ends: past}"
	f := newRulesFile(t, fmt.Sprintf(file, 100_000))
	rules := f.load(newLimiter(t))
	tokens := rule(t, rules, "tokens")
	keys := []string{"none", "k", "own", "joins", "leaves", "ends", "renamed"}
	holds := map[string]*tiered.Hold{}
	for _, key := range keys {
		h, d, err := tokens.For(key).Hold(context.Background(), key, 500, time.Minute)
		if err != nil || h == nil {
			t.Fatalf("%s: %+v, %v", key, d, err)
		}
		holds[key] = h
	}
	byPlan, d, err := tokens.Plan("past").Hold(context.Background(), "on a plan", 500, time.Minute)
	if err != nil || byPlan == nil {
		t.Fatalf("%+v, %v", d, err)
	}
	keys, holds["on a plan"] = append(keys, "on a plan"), byPlan
	kept, d, err := tokens.Plan("kept").Hold(context.Background(), "on a plan that a key leaves", 500, time.Minute)
	if err != nil || kept == nil {
		t.Fatalf("%+v, %v", d, err)
	}
	keys, holds["on a plan that a key leaves"] = append(keys, "on a plan that a key leaves"), kept
	f.write(strings.NewReplacer("moves: kept", "moves: small", "joins: 50000/1m", "joins: gold", ", leaves: 50000/1m", "", ", past: 50000/1m", "", ", ends: past", "", ", early: 50000/1m", ", late: 200000/1m",
		"renamed: early", "renamed: late").Replace(fmt.Sprintf(file, 200_000)))
	must(t, rules.Reload())
	for _, key := range keys {
		if a := tokens.For(key).Algorithm(); a != limit.GCRA() {
			t.Errorf("%s is counted by %v", key, a)
		}
		allow(t, tokens, key, 1000)
		must(t, holds[key].Settle(context.Background(), 100))
		if d := allow(t, tokens, key, 90_000); !d.Allowed {
			t.Errorf("%s, after the settlement of a hold: %+v", key, d)
		}
	}
}
