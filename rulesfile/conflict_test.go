package rulesfile

import (
	"errors"
	"strings"
	"testing"

	"github.com/tierlimit/tierlimit/limit"
)

// A rule that the program has made itself cannot be in a file with another limit: code that holds the
// program's rule would keep using it, whatever the file says. The error names both limits, and changes
// nothing.
func TestARuleOfTheProgramConflictsWithTheFile(t *testing.T) {
	limiter := newLimiter(t)
	own, err := limiter.Rule("search", limit.PerMinute(60))
	must(t, err)
	f := newRulesFile(t, "rules: {other: {limit: 1/s},\n  search: {limit: 5/1m}}")
	_, err = Load(limiter, f.path)
	if !errors.Is(err, ErrInvalidFile) || !errors.Is(err, limit.ErrInvalidRule) || !says(err, f.path+":2:3:", `"search"`, "60/1m", "5/1m", "the program") {
		t.Fatalf("%v", err)
	}
	if again, err := limiter.Rule("search", limit.PerMinute(60)); err != nil || again != own {
		t.Errorf("the program's rule is not in force any more: %v", err)
	}
	if _, err := limiter.Rule("other", limit.PerHour(1)); err != nil {
		t.Errorf("a part of the file is in force: %v", err)
	}
}

// Equal rules do not conflict, whichever comes first, until the file's rule changes.
func TestEqualRulesConflictOnceTheFileChanges(t *testing.T) {
	for name, fileFirst := range map[string]bool{"the file first": true, "the program first": false} {
		t.Run(name, func(t *testing.T) {
			limiter := newLimiter(t)
			f := newRulesFile(t, "rules: {search: {limit: 60/1m}, other: {limit: 1/s}}")
			var rules *Rules
			if fileFirst {
				rules = f.load(limiter)
			}
			_, err := limiter.Rule("search", limit.PerMinute(60))
			must(t, err)
			if !fileFirst {
				rules = f.load(limiter)
			}
			search, other := rule(t, rules, "search"), rule(t, rules, "other")

			f.write("rules: {search: {limit: 60/1m}, other: {limit: 2/s}}")
			must(t, rules.Reload())
			f.write("rules: {search: {limit: 5/1m}, other: {limit: 3/s}}")
			if err := rules.Reload(); !errors.Is(err, limit.ErrInvalidRule) || !says(err, "60/1m", "5/1m") {
				t.Errorf("%v", err)
			}
			if search.For("k").Limit() != limit.PerMinute(60) || other.For("k").Limit() != limit.PerSecond(2) {
				t.Errorf("in force: %v and %v", search.For("k").Limit(), other.For("k").Limit())
			}
			f.write("rules: {search: {limit: 60/1m, outage: deny}, other: {limit: 3/s}}")
			if err := rules.Reload(); !errors.Is(err, limit.ErrInvalidRule) {
				t.Errorf("another outage policy: %v", err)
			}
			f.write("rules: {search: {limit: 60/1m}, other: {limit: 4/s}}")
			must(t, rules.Reload())
			if other.For("k").Limit() != limit.PerSecond(4) {
				t.Errorf("after a conflict nothing is loaded: %v", other.For("k").Limit())
			}
		})
	}
}

// Conflicts are also reported if the file comes first, between two files, and if the program has
// changed a file's rule.
func TestWhoDefinesARuleSecondIsToldSo(t *testing.T) {
	limiter := newLimiter(t)
	f := newRulesFile(t, "rules: {search: {limit: 5/1m}}")
	rules := f.load(limiter)
	if _, err := limiter.Rule("search", limit.PerMinute(60)); !errors.Is(err, limit.ErrInvalidRule) || !says(err, `"search"`, "60/1m", "5/1m") {
		t.Errorf("the program: %v", err)
	}
	second := newRulesFile(t, "rules: {search: {limit: 7/1m}}")
	if _, err := Load(limiter, second.path); !errors.Is(err, limit.ErrInvalidRule) || !says(err, "7/1m", "5/1m", f.path) {
		t.Errorf("another file: %v", err)
	}
	_, err := limiter.ChangeRule("search", limit.PerMinute(9))
	must(t, err)
	f.write("rules: {search: {limit: 6/1m}}")
	if err := rules.Reload(); !errors.Is(err, limit.ErrInvalidRule) || !says(err, "9/1m", "6/1m") {
		t.Errorf("changed by the program: %v", err)
	}
}

// If two files have an equal rule, neither can change it while the other has it, because users of the
// other file's rule would keep the old one.
func TestTwoFilesWithAnEqualRule(t *testing.T) {
	const before, after = "rules: {search: {limit: 5/1m}, own: {limit: 1/s}}", "rules: {search: {limit: 50/1m}, own: {limit: 1/s}}"
	for name, otherFirst := range map[string]bool{"the first": false, "the second": true} {
		t.Run(name, func(t *testing.T) {
			limiter := newLimiter(t)
			f, other := newRulesFile(t, before), newRulesFile(t, "rules: {search: {limit: 5/1m}, other: {limit: 1/s}}")
			var rules, others *Rules
			if otherFirst {
				others = other.load(limiter)
			}
			rules = f.load(limiter)
			if !otherFirst {
				others = other.load(limiter)
			}
			f.write(after)
			if err := rules.Reload(); !errors.Is(err, limit.ErrInvalidRule) || !says(err, "50/1m", "5/1m", other.path+" has already defined") {
				t.Errorf("%v", err)
			}
			must(t, others.Reload())
			other.write("rules: {other: {limit: 1/s}}") // leaves the rule to the first file
			must(t, others.Reload())
			must(t, rules.Reload())
			if got := rule(t, rules, "search").For("k").Limit(); got != limit.PerMinute(50) {
				t.Errorf("in force: %v", got)
			}
		})
	}
}

// A file's own rules change with the file. This also holds for rules that were missing from it for a
// while, and if the file is loaded a second time.
func TestARuleMayLeaveTheFileAndComeBack(t *testing.T) {
	f := newRulesFile(t, "rules: {a: {limit: 5/1m}, b: {limit: 5/1m}}")
	limiter := newLimiter(t)
	rules := f.load(limiter)
	for _, text := range []string{"rules: {a: {limit: 6/1m}}", "rules: {a: {limit: 7/1m}, b: {limit: 8/1m}}"} {
		f.write(text)
		must(t, rules.Reload())
	}
	if got := rule(t, rules, "b").For("k").Limit(); got != limit.PerMinute(8) {
		t.Errorf("%v", got)
	}
	f.write("rules: {a: {limit: 9/1m}}")
	if got := rule(t, f.load(limiter), "a").For("k").Limit(); got != limit.PerMinute(9) {
		t.Errorf("loaded once more: %v", got)
	}
}

// A rule that a file has left out is in force no longer: another file, or the program, may define it anew.
func TestARuleThatIsLeftOutCanBeDefinedElsewhere(t *testing.T) {
	limiter := newLimiter(t)
	f := newRulesFile(t, "rules: {moved: {limit: 5/1m}, taken: {limit: 5/1m}, own: {limit: 1/s}}")
	rules := f.load(limiter)
	f.write("rules: {own: {limit: 1/s}}")
	must(t, rules.Reload())

	other := newRulesFile(t, "rules: {moved: {limit: 50/1m}}")
	if got := rule(t, other.load(limiter), "moved").For("k").Limit(); got != limit.PerMinute(50) {
		t.Errorf("another file: %v", got)
	}
	if r, err := limiter.Rule("taken", limit.PerMinute(9)); err != nil || r.Limit() != limit.PerMinute(9) {
		t.Errorf("the program: %v, %v", r, err)
	}
	f.write("rules: {own: {limit: 1/s}, moved: {limit: 5/1m}}")
	if err := rules.Reload(); !errors.Is(err, limit.ErrInvalidRule) || !says(err, other.path+" has already defined") {
		t.Errorf("the file that had it first: %v", err)
	}
}

func says(err error, words ...string) bool {
	for _, word := range words {
		if err == nil || !strings.Contains(err.Error(), word) {
			return false
		}
	}
	return true
}
