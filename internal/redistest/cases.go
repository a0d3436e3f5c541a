package redistest

import (
	"flag"
	"strconv"
	"testing"
)

// FewerCases divides the number of cases that random tests try (rapid's -rapid.checks) by a number until the test
// ends. It is for backends that decide as the server does but take many times as long. The test must not be
// parallel.
func FewerCases(tb testing.TB, by int) {
	tb.Helper()
	checks := flag.Lookup("rapid.checks")
	if checks == nil {
		tb.Fatal("redistest: FewerCases in a test binary without rapid")
	}
	before := checks.Value.String()
	n, err := strconv.Atoi(before)
	if err != nil || by < 1 {
		tb.Fatalf("redistest: FewerCases(%d) of %q cases", by, before)
	}
	set := func(to string) {
		if err := checks.Value.Set(to); err != nil {
			tb.Error(err)
		}
	}
	set(strconv.Itoa(max(1, n/by)))
	tb.Cleanup(func() { set(before) })
}
