package limit

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseAlgorithm(t *testing.T) {
	for text, want := range map[string]Algorithm{
		"":                               Automatic(),
		"auto":                           Automatic(),
		"sliding-log":                    SlidingLog(),
		"sliding-log:zset":               SlidingLogZSet(),
		"gcra":                           GCRA(),
		"fixed-window":                   FixedWindow(),
		"sliding-counter":                SlidingCounter(DefaultBuckets, Strict),
		"sliding-counter:k=60":           SlidingCounter(60, Strict),
		"sliding-counter:k=60,strict":    SlidingCounter(60, Strict),
		"sliding-counter:estimate":       SlidingCounter(DefaultBuckets, Estimate),
		"sliding-counter:k=1,estimate":   SlidingCounter(1, Estimate),
		"sliding-counter:estimate,k=256": SlidingCounter(MaxBuckets, Estimate),
	} {
		got, err := ParseAlgorithm(text)
		if err != nil || got != want {
			t.Errorf("ParseAlgorithm(%q) is %v, %v; want %v", text, got, err, want)
		}
	}
}

// Law 6: the error names the parameter and quotes the value.
func TestParseAlgorithmErrors(t *testing.T) {
	for text, says := range map[string]string{
		"leaky-bucket":            `"leaky-bucket", must be one of auto, sliding-log, sliding-counter, gcra, fixed-window`,
		"GCRA":                    `"GCRA"`,
		"auto:k=3":                "auto has no parameters",
		":k=3":                    "auto has no parameters",
		"gcra:k=3":                `gcra has no parameter "k=3"`,
		"sliding-log:strict":      `sliding-log has no parameter "strict"`,
		"gcra:burst=10":           "the burst is part of the limit: write it there, like 60/1m,burst=10",
		"gcra:zset":               `gcra has no parameter "zset"`,
		"sliding-counter:zset":    `unknown parameter "zset"`,
		"sliding-counter:k":       `k="" is not`,
		"sliding-counter:k=x":     `k="x" is not`,
		"sliding-counter:k=0":     "k is 0,",
		"sliding-counter:k=-1":    "k is -1,",
		"sliding-counter:k=257":   "k is 257,",
		"sliding-counter:rough":   `unknown parameter "rough"`,
		"sliding-counter:strict=": `unknown parameter "strict="`,

		// Settings that contradict or repeat each other are a mistake, like two bursts of a limit.
		"sliding-counter:estimate,strict": `the rounding (strict or estimate) is given twice`,
		"sliding-counter:strict,estimate": `the rounding (strict or estimate) is given twice`,
		"sliding-counter:strict,strict":   `the rounding (strict or estimate) is given twice`,
		"sliding-counter:k=16,k=60":       `k is given twice`,
		"sliding-log:zset,zset":           `zset is given twice`,
	} {
		_, err := ParseAlgorithm(text)
		if !errors.Is(err, ErrInvalidAlgorithm) || !strings.Contains(err.Error(), says) {
			t.Errorf("ParseAlgorithm(%q): %v; want ErrInvalidAlgorithm saying %s", text, err, says)
		}
	}
}

// Law 6 holds for algorithms that are put together in code, too. The error shows an invalid k as it was given.
func TestValidateAlgorithm(t *testing.T) {
	for _, a := range append(Algorithms(), Automatic(), SlidingCounter(1, Estimate), SlidingCounter(MaxBuckets, Strict)) {
		if err := a.Validate(); err != nil {
			t.Errorf("%v: %v", a, err)
		}
	}
	for says, a := range map[string]Algorithm{
		"k is 0,":           SlidingCounter(0, Strict),
		"k is -1,":          SlidingCounter(-1, Strict),
		"k is 257,":         SlidingCounter(MaxBuckets+1, Strict),
		"k is 65552,":       SlidingCounter(1<<16+16, Strict),
		"k is -2147483648,": SlidingCounter(math.MinInt32, Strict),
		"rounding is 2,":    SlidingCounter(16, Strict+1),
	} {
		err := a.Validate()
		if !errors.Is(err, ErrInvalidAlgorithm) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v; want ErrInvalidAlgorithm saying %q", a, err, says)
		}
	}
}

// Every algorithm, with every setting of its parameters, is equal after being written and read again, as text and
// within JSON.
func TestAlgorithmsReadBack(t *testing.T) {
	all := append(Algorithms(), Automatic(), SlidingLogZSet(), Concurrency())
	for k := 1; k <= MaxBuckets; k++ {
		all = append(all, SlidingCounter(k, Estimate), SlidingCounter(k, Strict))
	}
	for _, a := range all {
		if got, err := ParseAlgorithm(a.String()); err != nil || got != a {
			t.Errorf("ParseAlgorithm(%q) is %v, %v", a, got, err)
		}
	}
	type settings struct{ Use []Algorithm }
	text, err := json.Marshal(settings{all})
	if err != nil {
		t.Fatal(err)
	}
	var got settings
	if err := json.Unmarshal(text, &got); err != nil || !slices.Equal(got.Use, all) {
		t.Errorf("%s reads as %v, %v", text, got.Use, err)
	}
}

func TestUnmarshalTextKeepsTheOldValueOnError(t *testing.T) {
	a := SlidingCounter(60, Strict)
	if err := a.UnmarshalText([]byte("sliding-counter:k=0")); !errors.Is(err, ErrInvalidAlgorithm) {
		t.Errorf("unmarshalling k=0: %v", err)
	}
	if a != SlidingCounter(60, Strict) {
		t.Errorf("an error left %v behind", a)
	}
}

func TestAlgorithmNames(t *testing.T) {
	var names []string
	for _, a := range append(Algorithms(), Automatic(), Concurrency(), Algorithm{kind: 99}) {
		names = append(names, a.Name())
	}
	want := []string{"sliding-log", "sliding-counter", "gcra", "fixed-window", "auto", "concurrency", "unknown"}
	if !slices.Equal(names, want) {
		t.Errorf("names %q, want %q", names, want)
	}
	if got := SlidingCounter(60, Estimate).String(); got != "sliding-counter:k=60,estimate" {
		t.Errorf("a counter is written %q", got)
	}
	if got := Rounding(2).String(); got != "unknown" {
		t.Errorf("rounding 2 is called %q", got)
	}
}

func TestDials(t *testing.T) {
	if a := SlidingCounter(60, Strict); a.Buckets() != 60 || a.Rounding() != Strict {
		t.Errorf("%v has %d buckets and is %v", a, a.Buckets(), a.Rounding())
	}
	for _, a := range []Algorithm{Automatic(), SlidingLog(), GCRA(), FixedWindow()} {
		if a.Buckets() != 0 {
			t.Errorf("%v has %d buckets", a, a.Buckets())
		}
	}
	if !SlidingCounter(1, Estimate).Same(SlidingCounter(60, Strict)) || GCRA().Same(SlidingLog()) {
		t.Error("Same must look at names only")
	}
	if !Automatic().IsAutomatic() || GCRA().IsAutomatic() {
		t.Error("only the zero Algorithm is automatic")
	}
}

// Law 1: each algorithm states its worst case. Package internal/model shows that the worst case holds and is
// reached.
func TestWorstCaseAndCapacity(t *testing.T) {
	l := PerMinute(100).WithBurst(30)
	for _, test := range []struct {
		a                   Algorithm
		worstCase, capacity int64
	}{
		{SlidingLog(), 100, 100},
		{SlidingCounter(16, Strict), 100, 100},
		{SlidingCounter(16, Estimate), 199, 100},
		{SlidingCounter(1, Estimate), 199, 100},
		{GCRA(), 129, 30},
		{FixedWindow(), 200, 100},
	} {
		if got := test.a.WorstCase(l); got != test.worstCase {
			t.Errorf("%v: worst case %d, want %d", test.a, got, test.worstCase)
		}
		if got := test.a.Capacity(l); got != test.capacity {
			t.Errorf("%v: capacity %d, want %d", test.a, got, test.capacity)
		}
	}
	if l := PerCalendar(100, CalendarMonth, time.UTC); FixedWindow().WorstCase(l) != 300 || FixedWindow().Capacity(l) != 100 {
		t.Errorf("a calendar limit of 100: worst case %d, capacity %d, want 300 and 100", FixedWindow().WorstCase(l), FixedWindow().Capacity(l))
	}
	if l := Concurrent(100); Concurrency().WorstCase(l) != 100 || Concurrency().Capacity(l) != 100 {
		t.Errorf("a concurrency limit of 100: worst case %d, capacity %d, want 100 for both", Concurrency().WorstCase(l), Concurrency().Capacity(l))
	}
	if l := PerMinute(100); GCRA().Capacity(l) != 100 || GCRA().WorstCase(l) != 199 {
		t.Errorf("GCRA without a burst: capacity %d, worst case %d, want the limit's 100 and 199", GCRA().Capacity(l), GCRA().WorstCase(l))
	}
}
