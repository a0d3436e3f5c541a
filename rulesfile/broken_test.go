package rulesfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/tierlimit/tierlimit/limit"
)

const (
	mustBeLimit = `, must be a limit like 60/1m, 1000/1h,burst=50 or 5000/month@Europe/Berlin`
	ruleFields  = `, must be one of limit, concurrent, slot_ttl, algorithm, need, outage, hold, unsettled, remember, lease, lease_within_limit, dry_run, shadow, plans, keys`
)

// broken has the error for each file in testdata/broken, without the file's name.
var broken = map[string]string{
	"access-log.yaml":            `:1:1: the file is "10.0.0.1 - - [22/Nov/2026:12:00:00 +0000] \"GET /a HTTP/1.1\" 200 7 \"-\" \"curl/8\" 10.0.0.1 - - [22/Nov/"..., must be a mapping (NAME: VALUE)`,
	"algorithm.yaml":             `:4:16: tierlimit: invalid algorithm: "leaky-bucket", must be one of auto, sliding-log, sliding-counter, gcra, fixed-window`,
	"anchor.yaml":                `:3:12: limit is an anchor or alias (rules files have none; write the value out)` + mustBeLimit + "\n" + `anchor.yaml:5:12: limit is an anchor or alias (rules files have none; write the value out)` + mustBeLimit,
	"deep.yaml":                  `:1:24: lists or fields are nested more than 16 deep`,
	"dials.yaml":                 `:4:16: tierlimit: invalid algorithm: k is 1000, a sliding counter has between 1 and 256 sub-windows`,
	"dry-run.yaml":               `:4:14: dry_run is "yes", must be true or false`,
	"dry-run-quoted.yaml":        `:4:14: dry_run is "true", must be true or false, without quotes`,
	"duplicate-key.yaml":         `:6:7: the file is not valid YAML: this name is already defined at [5:7]`,
	"duplicate-rule.yaml":        `:4:3: the file is not valid YAML: this name is already defined at [2:3]`,
	"empty-limit.yaml":           `:3:11: limit is empty` + mustBeLimit,
	"key-of-slots.yaml":          `:5:14: 60/1m cannot be the limit of a plan or key of rule "search", whose limit is 10/concurrent: ` + notTheSameCalls,
	"key.yaml":                   `:4:20: the value of a key is a list, must be the name of a plan, or a limit like 60/1m, 1000/1h,burst=50 or 5000/month@Europe/Berlin` + "\n" + `key.yaml:5:16: the value of a key is a list, must be the name of a plan`,
	"latin1.yaml":                `:3:6: the file is not text in UTF-8`,
	"lease-twice.yaml":           `:2:3: rule "search" has both lease and lease_within_limit, choose one of them`,
	"lease.yaml":                 `:4:12: lease is "10%", must be a whole percentage of the limit, 1 to 50, like 10`,
	"lease-too-large.yaml":       `:4:25: rule "search": tierlimit: invalid option: a lease of 60 % of the limit, must be between 1 and 50`,
	"limit-without-window.yaml":  `:3:12: tierlimit: invalid limit: "60" has no "/": write it as QUOTA/WINDOW, like 10/1m`,
	"log-too-large.yaml":         `:2:3: rule "search": tierlimit: invalid algorithm: a sliding-log can hold at most 100000 units, and the limit is 100000000/1m: use a sliding counter or GCRA`,
	"escape.yaml":                `:4:13: outage is "\x1b[2J", must be approximate, allow or deny`,
	"misindented.yaml":           `:4:4: the file is not valid YAML: value is not allowed in this context`,
	"need-bytes.yaml":            `:4:19: bytes is "1kB", must be a whole number of bytes`,
	"need-and-algorithm.yaml":    `:2:3: rule "search": tierlimit: invalid option: the rule has both a Need and the algorithm gcra; set only one of them`,
	"need-unmet.yaml":            `:7:7: rule "search": tierlimit: nothing meets the need: 1000000/1m with never above the limit, at most 6.25 % of the window late, at most 50 bytes a key; least memory: fixed-window, 168 bytes; least above the limit: sliding-counter:k=2,strict, 0 %, with 184 bytes; least late: fixed-window, 0 %`,
	"no-limit.yaml":              `:2:3: rule "search" has no limit`,
	"no-rules.yaml":              `:1:1: the file has no rules` + "\n" + `no-rules.yaml:1:18: no rule has a plan "gold"`,
	"none.yaml":                  `:1:1: the file is empty, must have rules`,
	"outage.yaml":                `:4:13: outage is "ignore", must be approximate, allow or deny`,
	"plan-concurrent.yaml":       `:5:13: 5/concurrent cannot be the limit of a plan or key of rule "search", whose limit is 60/1m: ` + notTheSameCalls + "\n" + `plan-concurrent.yaml:7:14: 7/concurrent cannot be the limit of a plan or key of rule "search", whose limit is 60/1m: ` + notTheSameCalls,
	"plan-limit.yaml":            `:5:13: tierlimit: invalid limit: window is 0s, must be between 1ms and 8784h`,
	"plan-name.yaml":             `:5:7: the name of plan "gold/yearly" contains "/", which only limits may contain`,
	"limit-of-all.yaml":          `:6:13: no rule has a plan "500/1m": here keys are put on plans, and a limit for one key belongs in the keys of its rule`,
	"plan-of-all.yaml":           `:6:13: no rule has a plan "silver"`,
	"plan-of-key.yaml":           `:6:17: rule "search" has no plan "glod"`,
	"plan-too-large.yaml":        `:5:19: rule "search": tierlimit: invalid algorithm: a sliding-log can hold at most 100000 units, and the limit is 100000000/1m: use a sliding counter or GCRA`,
	"remember.yaml":              `:5:15: rule "search": tierlimit: invalid option: DenialLife of 5s, must be between 0 and 1s`,
	"remember-text.yaml":         `:4:15: remember is "5", must be a duration like 200ms, or 0`,
	"rules-has-none.yaml":        `:1:1: rules contains no rule`,
	"rule-is-text.yaml":          `:2:11: rule "search" is "60/1m", must be a mapping (NAME: VALUE)`,
	"plan-number.yaml":           `:5:12: tierlimit: invalid limit: "600" has no "/": write it as QUOTA/WINDOW, like 10/1m`,
	"rule-name-with-outage.yaml": `:2:3: tierlimit: invalid rule: name "per user", must be 1 to 64 letters, digits, _, -, . or /`,
	"rule-name.yaml":             `:2:3: tierlimit: invalid rule: name "search items", must be 1 to 64 letters, digits, _, -, . or /`,
	"rules-is-a-list.yaml":       `:2:3: rules is a list, must be a mapping (NAME: VALUE)`,
	"unsettled.yaml":             `:4:16: unsettled is "refund", must be keep or give_back`,
	"several.yaml":               `:3:12: tierlimit: invalid limit: window "1x" in "60/1x" is not a duration like 10s, 1m or 24h` + "\n" + `several.yaml:4:13: outage is "maybe", must be approximate, allow or deny` + "\n" + `several.yaml:5:3: rule "export" has no limit` + "\n" + `several.yaml:6:5: unknown field "limt"` + ruleFields,
	"shadow-is-not-dry-run.yaml": `:4:13: shadow is "true", must be the part of the keys to compare with the exact log, above 0 and up to 1 (for a rule that never denies say dry_run: true)`,
	"shadow-of-slots.yaml":       `:5:13: rule "search": tierlimit: invalid option: Shadow of 20, must be the part of the keys to compare, above 0 and up to 1`,
	"shadow-part.yaml":           `:4:13: rule "search": tierlimit: invalid option: Shadow of 20, must be the part of the keys to compare, above 0 and up to 1`,
	"hold.yaml":                  `:4:11: hold is "2000 tokens", must be how long a hold lasts, like 90s`,
	"hold-too-long.yaml":         `:4:11: rule "search": tierlimit: invalid option: HoldLife of 48h0m0s, must be between 1ms and 24h0m0s`,
	"hold-concurrent.yaml":       `:4:11: rule "search": tierlimit: invalid option: HoldLife cannot be combined with the limit 10/concurrent, which has no window`,
	"tab.yaml":                   ":3:1: the file is not valid YAML: a tab cannot indent, write spaces",
	"tab-in-number.yaml":         ":6:7: text without quotes contains a tab, put it in quotes",
	"tab-in-text.yaml":           ":6:7: text without quotes contains a tab, put it in quotes",
	"time-zone.yaml":             `:3:12: tierlimit: invalid limit: time zone "Berlin" in "5000/month@Berlin" is not known, write it like UTC or Europe/Berlin`,
	"two-documents.yaml":         `:4:1: a second document begins here, or a directive precedes the first; a rules file must be a single document`,
	"unclosed.yaml":              `:2:11: the file is not valid YAML: could not find flow mapping end token '}'`,
	"unknown-need-field.yaml":    `:4:22: unknown field "memory", must be one of above, late, bytes`,
	"unknown-rule-field.yaml":    `:4:5: unknown field "algoritm"` + ruleFields,
	"unknown-top-field.yaml":     `:1:1: unknown field "rule", must be one of rules, keys`,
	"window.yaml":                `:3:12: tierlimit: invalid limit: window "1 fortnight" in "60/1 fortnight" is not a duration like 10s, 1m or 24h`,
	"zero-limit.yaml":            `:3:12: tierlimit: invalid limit: quota is 0, must be between 1 and 1099511627776`,
}

// Each broken file is refused, with line, column and cause. It is refused at start, and as a change of
// a file in force, whose rules then stay in force.
func TestBrokenFiles(t *testing.T) {
	limiter := newLimiter(t)
	paths, err := filepath.Glob("testdata/broken/*.yaml")
	if err != nil || len(paths) != len(broken) {
		t.Fatalf("%d files, %d are known, %v", len(paths), len(broken), err)
	}
	t.Chdir("testdata/broken")
	for _, path := range paths {
		name := filepath.Base(path)
		t.Run(name, func(t *testing.T) {
			want := name + broken[name]
			_, err := Load(limiter, name)
			var p *Problem
			if err == nil || err.Error() != want || !errors.Is(err, ErrInvalidFile) || !errors.As(err, &p) {
				t.Errorf("%v\nwant %s", err, want)
			}
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			f := newRulesFile(t, good)
			rules := f.load(limiter)
			search := rule(t, rules, "search")
			f.write(string(text))
			if err := rules.Reload(); !errors.Is(err, ErrInvalidFile) {
				t.Errorf("reloaded: %v", err)
			}
			if got := search.For("anyone").Limit(); got != limit.PerMinute(60) {
				t.Errorf("the limit is now %v", got)
			}
		})
	}
}

// The causes of problems can be told apart with errors.Is.
func TestProblemsWrapTheirCause(t *testing.T) {
	_, err := read("f", []byte("rules: {a: {limit: 0/s}, b: {limit: 1/s, algorithm: x}}"))
	for _, cause := range []error{ErrInvalidFile, limit.ErrInvalidLimit, limit.ErrInvalidAlgorithm} {
		if !errors.Is(err, cause) {
			t.Errorf("%v is no %v", err, cause)
		}
	}
}

// The errors of a file with a thousand mistakes do not fill the log.
func TestProblemsAreBounded(t *testing.T) {
	text := []byte("rules:\n")
	for range 1000 {
		text = append(text, "  a"...)
		text = append(text, byte('a'+len(text)%26), byte('a'+len(text)/26%26), byte('a'+len(text)/676%26))
		text = append(text, ": {limt: 1}\n"...)
	}
	_, err := read("f", text)
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatal(err)
	}
	if n := len(joined.Unwrap()); n > maxProblems {
		t.Errorf("%d problems", n)
	}
}

func TestFilesAreBounded(t *testing.T) {
	f := newRulesFile(t, good+"#"+string(make([]byte, maxBytes)))
	if _, err := Load(newLimiter(t), f.path); !errors.Is(err, ErrInvalidFile) {
		t.Errorf("%v", err)
	}
}
