package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// The scenarios start this test binary again as the instances of a fleet.
func TestMain(m *testing.M) {
	if isWorker() {
		workerMain()
		return
	}
	tiered.LogOfRedis(nil)
	os.Exit(m.Run())
}

// quick returns the settings of a run that takes some ten seconds.
func quick(t *testing.T, scenario string) settings {
	t.Helper()
	s, err := parseSettings([]string{"-scenario", scenario, "-window", "1s", "-quota", "400", "-schedules", "3", "-seed", "5"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Laws 4, 7 and 11 hold for a whole fleet of processes, through outages of several kinds. The bounds are in
// bounds.go.
func TestLaw11Outages(t *testing.T) {
	// Limit the scenarios at a time to the number of cores, because the measurement of a fleet needs a core.
	cores := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, name := range []string{"stop", "kill", "most-cut-off", "cut-off-in-turn", "slow", "flapping", "flushall", "random"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cores <- struct{}{}
			defer func() { <-cores }()
			s := quick(t, name)
			o, err := play(t.Context(), s, s.chosen[0])
			if err != nil {
				t.Fatal(err)
			}
			var text bytes.Buffer
			if err := (report{Settings: s, Outcomes: []outcome{o}}).print(&text); err != nil {
				t.Fatal(err)
			}
			t.Logf("\n%s", text.String())
			if len(o.Checks) < 3 {
				t.Errorf("only %d checks", len(o.Checks))
			}
			for _, c := range o.Checks {
				tested := c.Tested
				switch { // the race detector slows down what the bounds are about
				case raceDetector && c.AtLeast:
					tested *= 0.6
				case raceDetector:
					tested *= 1.3
				}
				if !c.keeps(tested) {
					t.Errorf("%v; tested against %v", c, tested)
				}
			}
			if name == "stop" {
				seesTheDifference(t, o)
				writesEverything(t, s, o)
			}
		})
	}
}

// A fleet that falls back to the full limit on each instance must be seen to exceed it. Otherwise none of the other
// checks would mean anything.
func seesTheDifference(t *testing.T, o outcome) {
	i := slices.IndexFunc(o.Factors, func(x factors) bool { return x.Subject == naive.String() })
	if i < 0 || o.Factors[i].Worst < 2 || o.Factors[i].Inside < 1.5 {
		t.Errorf("full limit on each of four instances: %+v", o.Factors)
	}
}

func writesEverything(t *testing.T, s settings, o outcome) {
	dir := t.TempDir()
	s.json, s.markdown = filepath.Join(dir, "json"), filepath.Join(dir, "md")
	s.csv, s.svg = filepath.Join(dir, "csv"), filepath.Join(dir, "svg")
	if err := (report{Settings: s, Outcomes: []outcome{o}}).writeFiles(s); err != nil {
		t.Fatal(err)
	}
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if !json.Valid([]byte(read(s.json))) || !strings.Contains(read(s.markdown), "| tierlimit |") {
		t.Errorf("JSON or Markdown:\n%s\n%s", read(s.json), read(s.markdown))
	}
	// At least 3 subjects over 7.2 windows, in tenths of a window.
	if lines := strings.Count(read(s.csv), "\n"); lines < 3*72 {
		t.Errorf("%d lines of CSV", lines)
	}
	svg := xml.NewDecoder(strings.NewReader(read(s.svg)))
	for {
		if _, err := svg.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("SVG: %v", err)
		}
	}
}

func TestCallsAreReadAsTheyWereLogged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := call{
			at:       rapid.Int64Min(0).Draw(t, "at"),
			key:      rapid.Uint32().Draw(t, "key"),
			took:     time.Duration(rapid.Int64Range(0, tookMost).Draw(t, "took")) * tookUnit,
			tier:     limit.Tier(rapid.IntRange(0, int(limit.TierOverload)).Draw(t, "tier")),
			by:       subject(rapid.IntRange(0, int(bare)).Draw(t, "by")),
			allowed:  rapid.Bool().Draw(t, "allowed"),
			degraded: rapid.Bool().Draw(t, "degraded"),
			instance: 3,
		}
		b := c.encode()
		if got := decodeCall(b[:], 3); got != c {
			t.Fatalf("%+v, was %+v", got, c)
		}
	})
}

func TestChecks(t *testing.T) {
	for _, c := range []struct {
		value, goal float64
		atLeast     bool
		met         bool
	}{{1.1, 1.1, false, true}, {1.11, 1.1, false, false}, {0.8, 0.8, true, true}, {0.79, 0.8, true, false}, {math.NaN(), 1, false, false}, {math.NaN(), 1, true, false}} {
		k := check{Value: c.value, Goal: c.goal, AtLeast: c.atLeast}
		if k.met() != c.met {
			t.Errorf("%v: met is %v", k, k.met())
		}
	}
}

// Two units are granted before the cut, two late in the outage, and three at its end. Of the late calls, one is late
// because the whole machine was.
func TestOutcome(t *testing.T) {
	const ms = 1000 // µs
	f := &fleet{settings: settings{Window: time.Second, Quota: 2, Deadline: 50 * time.Millisecond}, weights: even}
	f.scenario.name, f.duty.Window = "stop", f.Window
	f.began, f.cut, f.up, f.end = 0, 1000*ms, 4000*ms, 6000*ms
	var calls []call
	for _, at := range []int64{500, 900, 2900, 2950, 3990, 4010, 4020} {
		calls = append(calls, call{at: at * ms, allowed: true, took: time.Microsecond, tier: limit.TierFallback, degraded: true})
	}
	calls = append(calls, call{at: 4030 * ms, took: time.Second}, call{at: 4040 * ms, by: naive, allowed: true})
	f.finals = []*final{
		{Calls: 9, Slow: []slowCall{{By: ours, Took: 60 * time.Millisecond}, {By: ours, Took: time.Second, Stall: 949 * time.Millisecond}, {By: naive, Took: time.Minute}}},
		{Errors: map[string]int{"some": 2}},
	}
	judgeOutage(f, calls)
	o := f.outcome(calls)
	if x := o.Factors[0]; x.Before != 1 || x.Cut != 0 || x.Inside != 1 || x.Recovery != 1.5 || x.After != 0 || x.Worst != 1.5 || x.Least != 0 {
		t.Errorf("factors %+v", x)
	}
	want := []float64{1.5, 0, 2, 1, 1} // worst, least, errors, late calls, p99 in µs
	for i, c := range o.Checks {
		if c.Value != want[i] {
			t.Errorf("%s: %v, want %v", c.What, c.Value, want[i])
		}
	}
	if len(o.Timeline) != 60 || o.Timeline[40].Without != 20 || o.Timeline[40].Redis != 0 || o.Timeline[49].Window != 1 {
		t.Errorf("timeline %+v", o.Timeline)
	}
}

// Under overload each key is judged by its own worst window, and calls count as decided by Redis or without it.
func TestOverloadIsJudgedByKey(t *testing.T) {
	const ms = 1000 // µs
	f := &fleet{settings: settings{Window: time.Second, Quota: 2, Outage: 4 * time.Second}}
	f.began, f.cut, f.up, f.end = 0, 0, 4000*ms, 6000*ms
	var calls []call
	for key := range uint32(keysAtLimit) {
		calls = append(calls, call{at: 100 * ms, key: key, allowed: true, tier: limit.TierRedis}, call{at: 1099 * ms, key: key, allowed: true, tier: limit.TierOverload})
	}
	calls = append(calls, call{at: 1099 * ms, key: 7, allowed: true}, call{at: 1100 * ms, key: 7, allowed: true}, call{at: 1200 * ms, key: 7})
	(&overload{gcra: true}).judge(f, calls)
	if most := f.mostOfKeys(calls); most[0] != 1 || most[keysAtLimit-2] != 1 || most[keysAtLimit-1] != 1.5 {
		t.Errorf("worst windows from %v to %v", most[0], most[keysAtLimit-1])
	}
	if len(f.checks) != 2 || f.checks[0].Value != 1 || math.Abs(f.checks[0].Goal-1.21) > 1e-9 || f.checks[1].Value != 1 {
		t.Errorf("%+v", f.checks)
	}
	if want := "asked 501 times a second, which is 2.0 times what Redis decided; 0.50 of the calls were decided without it"; !slices.Contains(f.notes, want) {
		t.Errorf("%q", f.notes)
	}
}

// The bound for calls with an open breaker is raised on a machine on which even a bare Get takes long.
func TestBoundOfOpenCalls(t *testing.T) {
	for _, test := range []struct {
		all  []latency
		want float64
	}{
		{nil, 20},
		{[]latency{{Tier: "open", P99: time.Second}, {Tier: bareGet, P99: 9 * time.Microsecond}}, 20},
		{[]latency{{Tier: "open", P99: time.Second}, {Tier: bareGet, P99: 11 * time.Microsecond}}, 22},
	} {
		if b := openBound(test.all); b.goal != test.want || b.tested != openP99.tested {
			t.Errorf("%v: %v, want %v", test.all, b, test.want)
		}
	}
}

func TestSchedulesAreTheirSeeds(t *testing.T) {
	for seed := range uint64(50) {
		one, other := randomFaults(seed, time.Second, 4), randomFaults(seed, time.Second, 4)
		if !slices.Equal(one, other) || len(one) < 1 {
			t.Errorf("seed %d: %v and %v", seed, one, other)
		}
	}
}

// What was played is not lost if a file cannot be written, or if a later scenario cannot be played.
func TestWhatWasPlayedIsTold(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stderr := writer(func(text []byte) {
		if bytes.Contains(text, []byte("stop ...")) {
			cancel()
		}
	})
	var stdout bytes.Buffer
	// The load is one that workers under the race detector keep up with. Otherwise they would not end for minutes.
	args := []string{"-scenario", "flushall,stop", "-window", "500ms", "-quota", "200", "-json", filepath.Join(t.TempDir(), "none", "json")}
	err := run(ctx, args, &stdout, stderr)
	if !errors.Is(err, context.Canceled) || !errors.Is(err, os.ErrNotExist) || !strings.Contains(stdout.String(), "worst window / limit") {
		t.Errorf("error %v, and it prints\n%s", err, stdout.String())
	}
}

type writer func([]byte)

func (w writer) Write(text []byte) (int, error) {
	w(text)
	return len(text), nil
}

func TestMistakesOnTheCommandLine(t *testing.T) {
	for _, args := range []string{"-scenario none", "-window 1ms", "-window 2s -outage 1s", "-quota 1", "-keys -1", "-debts -1", "-scenario random -schedules 0", "stray", "-no-such-flag"} {
		if _, err := parseSettings(strings.Fields(args), io.Discard); err == nil {
			t.Errorf("%s: no error", args)
		}
	}
	s, err := parseSettings(strings.Fields("-quick -scenario stop,debts"), io.Discard)
	if err != nil || len(s.chosen) != 2 || s.Window != 2*time.Second || s.Outage != 6*time.Second || s.Seed == 0 {
		t.Errorf("%+v, %v", s, err)
	}
}
