package main

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// Callers who wait and bursts are measured for an instant, and appear in the tables. Load groups are left out unless
// -only names them.
func TestLoadGroups(t *testing.T) {
	for _, g := range groups(settings{only: anything, Keys: 1}, "x") {
		if strings.HasPrefix(g.name, loadPrefix) {
			t.Errorf("%s is measured unasked", g.name)
		}
	}
	var stdout, stderr bytes.Buffer
	err := run(t.Context(), []string{
		"-redis", redistest.Start(t).URL(), "-seconds", "0.05", "-rounds", "1", "-keys", "50", "-only", "^load-(uniform/512|bursts/300)/tierlimit, GCRA",
	}, &stdout, &stderr)
	if err != nil && !errors.Is(err, errNotMet) {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	for _, row := range []string{"load-uniform  512", "load-bursts   300", "load-bursts, 300 callers"} {
		if !strings.Contains(stdout.String(), row) {
			t.Errorf("no line of %q:\n%s", row, stdout.String())
		}
	}
}

func TestLoadGoals(t *testing.T) {
	for _, test := range []struct {
		p99           float64 // µs
		without, fail uint64  // of 1,000 calls
		share, errors float64
	}{
		{24_000, 0, 0, 1, 0},
		{24_000, 2, 1, 0.997, 1},
		{26_000, 500, 0, math.NaN(), 0}, // too slow to require more
	} {
		c := measured(nameGCRA, ours, [2]float64{1, test.p99})
		c.workload = loadPrefix + "uniform"
		c.calls[allowed], c.calls[degraded], c.calls[failed] = 1000-test.without-test.fail, test.without, test.fail
		goals := (&report{Cells: []cell{c}}).loadGoals()
		if share := goals[0].measured; share != test.share && !(math.IsNaN(share) && math.IsNaN(test.share)) {
			t.Errorf("%+v: share by Redis %v", test, share)
		}
		if goals[1].measured != test.errors {
			t.Errorf("%+v: %v errors", test, goals[1].measured)
		}
	}
}
