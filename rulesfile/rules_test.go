package rulesfile

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// The example in the docs can be loaded, and means what its comments say.
func TestDocsExample(t *testing.T) {
	rules := load(t, newLimiter(t), "../docs/rules.yaml")
	search := rule(t, rules, "search")
	r := search.For("anyone")
	if r.Limit() != limit.PerMinute(60) || r.Algorithm() != limit.SlidingCounter(60, limit.Strict) || r.OutagePolicy() != tiered.Approximate || r.IsDryRun() {
		t.Errorf("%v, %v, %v, %v", r.Limit(), r.Algorithm(), r.OutagePolicy(), r.IsDryRun())
	}
	for key, want := range map[string]string{"tenant-7": "1000/1m", "tenant-9": "5000/1m", "007": "1000/1m", "7": "60/1m", "tenant-12": "300/1m"} {
		if got := search.For(key).Limit().String(); got != want {
			t.Errorf("%s is held to %s, want %s", key, got, want)
		}
	}
	if got := search.Plan("gold").Limit(); got != limit.PerMinute(1000) {
		t.Errorf("gold is %v", got)
	}
	if got := search.Plan("none").Limit(); got != limit.PerMinute(60) {
		t.Errorf("no plan is %v", got)
	}
	if r := rule(t, rules, "login").For("x"); r.OutagePolicy() != tiered.Deny || r.Algorithm() != limit.SlidingLog() {
		t.Errorf("%v, %v", r.OutagePolicy(), r.Algorithm())
	}
	if got := rule(t, rules, "invoices").For("tenant-7").Limit(); !got.IsCalendar() || got.Quota() != 50_000 {
		t.Errorf("%v", got)
	}
	if got := rule(t, rules, "ingest").For("x").Limit(); got.Burst() != 500 {
		t.Errorf("%v", got)
	}
	if r := rule(t, rules, "uploads").For("x"); r.WorstCase() != r.Limit().Quota() {
		t.Errorf("%v: %d", r.Algorithm(), r.WorstCase())
	}
	if r := rule(t, rules, "events").For("x"); r.WorstCase() != r.Algorithm().WorstCase(r.Limit())+10_000 {
		t.Errorf("%v with leases: %d", r.Algorithm(), r.WorstCase())
	}
	if r := rule(t, rules, "tokens").For("x"); r.UnsettledPolicy() != tiered.GiveBack {
		t.Errorf("what is held: %v", r.UnsettledPolicy())
	}
	if !rule(t, rules, "export").For("tenant-7").IsDryRun() {
		t.Error("export is in earnest")
	}
}

// The field dry_run: false has the same effect as no such field, and every part of a need counts.
func TestFieldsThatDecide(t *testing.T) {
	f := newRulesFile(t, "rules: {a: {limit: 5000/1m, dry_run: false, need: {above: 0, late: 0.02}}}")
	a := rule(t, f.load(newLimiter(t)), "a")
	if r := a.For("k"); a.Name() != "a" || r.IsDryRun() || r.Algorithm() != limit.SlidingCounter(60, limit.Strict) {
		t.Errorf("%s: dry run %v, %v", a.Name(), r.IsDryRun(), r.Algorithm())
	}
}

// Units that were charged also count under another limit and on another plan.
func TestReloadKeepsWhatWasCharged(t *testing.T) {
	f := newRulesFile(t, "rules: {search: {limit: 10/1h, plans: {gold: 20/1h}}}")
	rules := f.load(newLimiter(t))
	search := rule(t, rules, "search")
	allow(t, search, "k", 8)
	for _, step := range []struct {
		text      string
		remaining int64
	}{
		{"rules: {search: {limit: 12/1h}}", 3},
		{"rules: {search: {limit: 12/1h, plans: {gold: 20/1h}}}\nkeys: {k: gold}", 10},
		{"rules: {search: {limit: 12/1h, plans: {gold: 20/1h}, keys: {k: 30/1h}}}\nkeys: {k: gold}", 19},
		{"rules: {search: {limit: 40/1h, algorithm: 'sliding-counter:k=4'}}", 28},
	} {
		f.write(step.text)
		must(t, rules.Reload())
		if d := allow(t, search, "k", 1); !d.Allowed || d.Remaining != step.remaining {
			t.Errorf("%s: %+v, want %d remaining", step.text, d, step.remaining)
		}
	}
}

// A rule that the program uses cannot be removed from the file; an unused rule can.
func TestUsedRulesStay(t *testing.T) {
	f := newRulesFile(t, "rules: {used: {limit: 10/1h}, unused: {limit: 10/1h}}")
	rules := f.load(newLimiter(t))
	used := rule(t, rules, "used")
	_ = rule(t, rules, "used") // is named only once below
	f.write("\nrules: {unused: {limit: 20/1h}}")
	want := f.path + `:2:1: rule "used" is missing, but the program uses it; to stop enforcing it, keep it with dry_run: true`
	if err := rules.Reload(); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	f.write("rules: {used: {limit: 10/1h, remember: -1s}, unused: {limit: 10/1h}}") // it is not missing
	if err := rules.Reload(); err == nil || strings.Contains(err.Error(), "missing") {
		t.Errorf("the error of a rule that is invalid: %v", err)
	}
	if got := rule(t, rules, "unused").For("k").Limit(); got != limit.PerHour(10) {
		t.Errorf("a part of the file is in force: %v", got)
	}
	f.write("rules: {used: {limit: 30/1h}, unused: {limit: 30/1h}, more: {limit: 1/s}}")
	must(t, rules.Reload())
	if got := used.For("k").Limit(); got != limit.PerHour(30) {
		t.Errorf("%v", got)
	}
	rule(t, rules, "more")
	f.write("rules: {used: {limit: 40/1h}, more: {concurrent: 2}, unused: {limit: 1/s}}")
	want = f.path + `:1:31: rule "more" cannot become 2/concurrent while a program uses it as 1/1s: ` + notTheSameCalls
	if err := rules.Reload(); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	f.write("rules: {used: {limit: 40/1h}, more: {limit: 2/s}, unused: {limit: 1/s}, other: {concurrent: 2}}")
	must(t, rules.Reload())
	f.write("rules: {used: {limit: 40/1h}, more: {limit: 2/s}, unused: {limit: 1/s}, other: {limit: 2/s}}")
	must(t, rules.Reload())
	if _, err := rules.Rule("none"); !errors.Is(err, limit.ErrInvalidRule) {
		t.Errorf("%v", err)
	}
}

// Nobody sees a part of a change: at any time, all rules are from the same version of the file. While
// limits change all the time, the counts neither lose nor gain a unit.
func TestReloadsWhileDeciding(t *testing.T) {
	const callers, quota = 8, 2000
	// All limits are above the number of units used, so every request is charged.
	version := func(i int) string {
		return fmt.Sprintf("rules: {a: {limit: %d/1h, plans: {gold: %d/1h}}, b: {limit: %d/1h}}", quota+i, quota+i, quota+i)
	}
	f := newRulesFile(t, version(0))
	limiter := newLimiter(t)
	rules := f.load(limiter)
	a, b := rule(t, rules, "a"), rule(t, rules, "b")
	var charged atomic.Int64
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for !stop.Load() && charged.Load() < quota-callers {
				d, err := a.Allow(context.Background(), "k")
				if err != nil || !d.Allowed {
					t.Errorf("%+v, %v", d, err)
					return
				}
				charged.Add(1)
				in := *rules.inForce.Load()
				if in["a"].rule.Limit() != in["b"].rule.Limit() || in["a"].plans["gold"].Limit() != in["a"].rule.Limit() {
					t.Error("a part of a file is in force")
				}
			}
		})
	}
	for i := range 100 {
		if i%3 == 2 {
			f.write(bad)
			if err := rules.Reload(); err == nil {
				t.Error("a bad file was taken")
			}
			continue
		}
		f.write(version(i))
		must(t, rules.Reload())
	}
	stop.Store(true)
	wg.Wait()
	d := allow(t, a, "k", 1)
	if used := d.Limit - d.Remaining; used != charged.Load()+1 {
		t.Errorf("%d units are charged, %d were granted", used, charged.Load()+1)
	}
	if got := b.For("k").Limit(); got.Quota() != quota+99 {
		t.Errorf("in force in the end: %v", got)
	}
}

func TestOutcomesAreTold(t *testing.T) {
	limiter := newLimiter(t)
	var log strings.Builder
	var told []error
	f := newRulesFile(t, good)
	rules := f.load(limiter, OnLoad(func(err error) { told = append(told, err) }), Logger(textLogger(&log)))
	expect := func(ok, failed uint64, inForce bool) {
		t.Helper()
		got := limiter.Stats().Sources
		if len(got) != 1 {
			t.Fatalf("%+v", got)
		}
		at := got[0].LastSuccess
		want := tiered.SourceStats{Name: f.path, Loads: ok, Failures: failed, InForce: inForce, LastSuccess: at}
		if got[0] != want || time.Since(at) > time.Minute {
			t.Errorf("counted %+v, want %+v", got[0], want)
		}
	}
	expect(1, 0, true)
	f.write(bad)
	_ = rules.Reload()
	expect(1, 1, false)
	if !strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), "rules.yaml:1:25: tierlimit: invalid limit") {
		t.Errorf("log: %s", log.String())
	}
	f.write(better)
	must(t, rules.Reload())
	expect(2, 1, true)
	if !strings.Contains(log.String(), "level=INFO") || !strings.Contains(log.String(), "rules=1") {
		t.Errorf("log: %s", log.String())
	}
	if len(told) != 2 || told[0] == nil || told[1] != nil {
		t.Errorf("told %v", told)
	}
}

func TestLoadRefuses(t *testing.T) {
	limiter := newLimiter(t)
	f := newRulesFile(t, good)
	for name, option := range map[string]Option{
		"Logger": Logger(nil), "OnLoad": OnLoad(nil), "Every 9.9": Every(10*time.Millisecond - 1), "Every 1h0m0.0": Every(time.Hour + 1),
	} {
		if _, err := Load(limiter, f.path, option); !errors.Is(err, limit.ErrInvalidOption) || !strings.Contains(err.Error(), strings.Fields(name)[0]) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if rules := f.load(limiter, Every(time.Hour)); rules.every != time.Hour {
		t.Errorf("every %v", rules.every)
	}
	if _, err := Load(nil, f.path); !errors.Is(err, limit.ErrInvalidOption) {
		t.Errorf("%v", err)
	}
	if _, err := Load(limiter, f.path+"x"); err == nil || !strings.Contains(err.Error(), f.path+"x") {
		t.Errorf("%v", err)
	}
	rules := f.load(limiter)
	must(t, limiter.Close())
	f.write(better)
	if err := rules.Reload(); !errors.Is(err, limit.ErrClosed) {
		t.Errorf("%v", err)
	}
}

func allow(t testing.TB, r *Rule, key string, cost int64) limit.Decision {
	t.Helper()
	d, err := r.AllowN(context.Background(), key, cost)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
