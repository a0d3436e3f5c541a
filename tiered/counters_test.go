package tiered

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/inspect"
	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local/ledger"
)

// Rules of a file come and go, and the names of a refused file were never in force. Neither the counters nor the
// series of such names are kept, but the sums over all rules do not become smaller.
func TestLaw7NamesWithoutRulesAreForgotten(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	newRule(t, l, "stays", limit.PerHour(10))
	const names = 100
	for i := range names {
		if _, err := l.PrepareRule(fmt.Sprint("refused", i), limit.PerHour(10), Shadow(1)); err != nil {
			t.Fatal(err)
		}
		r, err := l.PrepareRule(fmt.Sprint("comes", i), limit.PerHour(10))
		if err != nil {
			t.Fatal(err)
		}
		if err := l.PutInForceFrom("file", r); err != nil {
			t.Fatal(err)
		}
		if _, err := r.AllowN(t.Context(), "k", 8); err != nil {
			t.Fatal(err)
		}
		h, _, err := r.Hold(t.Context(), "k", 2, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if d, err := r.Allow(t.Context(), "k"); err != nil || d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
		if err := h.Settle(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}
	redistest.Eventually(t, "only rules that are in force are kept", func() bool {
		runtime.GC()
		rules := l.Stats().Rules
		return len(rules) == 2 && rules[0].Name == fmt.Sprint("comes", names-1) && rules[1].Name == "stays"
	})
	if settled := l.Stats().Holds.Settled; settled != names {
		t.Errorf("%d holds were settled, want %d", settled, names)
	}
	if s := inspect.Of(l).Snapshot(); s.Allowed != 2*names || s.Denied != names {
		t.Errorf("%d allowed and %d denied, want %d and %d", s.Allowed, s.Denied, 2*names, names)
	}
}

// A name that comes back continues to count, unless Stats has left it out in the meantime: a counter becomes smaller
// only after it has been away. Names that nobody reads are bounded.
func TestNamesThatComeBack(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	first, _ := l.metrics.rule("r", false)
	l.metrics.forget(first)
	back, _ := l.metrics.rule("r", false)
	if back != first {
		t.Error("a name that came back between two calls of Stats began anew")
	}
	l.metrics.forget(back)
	if rules := l.Stats().Rules; len(rules) != 0 {
		t.Errorf("Stats has %+v", rules)
	}
	if back, _ = l.metrics.rule("r", false); back == first {
		t.Error("a name that Stats had left out continues")
	}
	for i := range 3 * maxIdle {
		r, _ := l.metrics.rule(fmt.Sprint("r", i), false)
		l.metrics.forget(r)
	}
	if n := len(l.metrics.rules); n > maxIdle+1 {
		t.Errorf("%d names are kept", n)
	}
}

// Names of rules that are gone do not share the numbers of rules in use. Otherwise a lost record of one rule would be
// one of so many names that all rules of the fleet settle.
func TestLaw11NamesWithoutRulesHaveNoLosses(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	stays := newRule(t, l, "stays", limit.PerHour(10))
	for i := range 10_000 {
		if _, err := l.PrepareRule(fmt.Sprint("comes", i), limit.PerHour(10)); err != nil {
			t.Fatal(err)
		}
	}
	anywhere, now := func(int) bool { return true }, l.shards.Now()
	redistest.Eventually(t, "only a rule in use has losses", func() bool {
		runtime.GC()
		now += int64(time.Hour) // the losses of earlier attempts are over
		l.ledger.Lost(anywhere, now)
		l.ledger.Lose(ledger.Debt[*outage.Rule]{Rule: stays.inOutage.Number}, now+1)
		lost := l.ledger.Lost(anywhere, now)
		return len(lost) == 1 && lost[0].Rule == "stays"
	})
}

// A rule that is not in force is counted for as long as the program uses it, if only for a hold of it.
func TestNamesInUseAreNotForgotten(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	hold := func() *Hold {
		r, err := l.PrepareRule("r", limit.PerHour(10))
		if err != nil {
			t.Fatal(err)
		}
		h, _, err := r.Hold(t.Context(), "k", 2, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	h := hold()
	for range 3 {
		runtime.GC()
	}
	if rules := l.Stats().Rules; len(rules) != 1 || rules[0].Name != "r" {
		t.Errorf("%+v", rules)
	}
	if err := h.Settle(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
}
