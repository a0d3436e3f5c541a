package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// A fleet's processes are this program, which is the test binary here.
func TestMain(m *testing.M) {
	if os.Getenv(memberVariable) != "" {
		os.Exit(beMember())
	}
	os.Exit(m.Run())
}

// written is what a run writes as JSON.
type written struct {
	Machine  machine
	Cells    []writtenCell
	Overload []struct {
		Subject string
		Median  map[string]float64
	}
	Memory, Held []map[string]any
	Renewals     []struct {
		Keys   int
		Median map[string]float64
	}
	Goals []struct{ Work, Figure, Verdict string }
}

type writtenCell struct {
	Workload, Reference, Subject, Flaws string
	Processes, Callers                  int
	Sound                               bool
	Median, Ratio                       map[string]float64
}

func (c *writtenCell) label() string {
	return label(c.Workload, size{c.Processes, c.Callers}, c.Subject)
}

// wrong returns what is wrong with a cell.
func (c *writtenCell) wrong() (found []string) {
	// Some subjects are expected to be unsound. throttled fails as soon as callers collide, and subjects that cannot
	// be used up at once take longer than this test to deny. How well a subject keeps a deadline is measured here but
	// not required.
	unsound := (c.Workload == "hot" || strings.HasPrefix(c.Workload, "fleet")) && c.Subject == nameThrottled ||
		c.Workload == "zipf" && (c.Subject == nameGoZero || c.Subject == nameGoLimiter)
	if !c.Sound && !unsound {
		found = append(found, c.Flaws)
	}
	if c.Median["p50_us"] <= 0 || c.Median["p99_us"] < c.Median["p50_us"] {
		found = append(found, fmt.Sprintf("medians %v", c.Median))
	}
	if _, measured := c.Median["decisions_per_second"]; c.Workload == "alone" || c.Workload == holdsAloneGroup {
		if measured || c.Subject == c.Reference && c.Ratio["p99_us"] != 1 {
			found = append(found, fmt.Sprintf("medians %v, ratios %v", c.Median, c.Ratio))
		}
		return found // in these groups only latency is measured
	}
	if c.Median["decisions_per_second"] <= 0 {
		found = append(found, fmt.Sprintf("medians %v", c.Median))
	}
	calls := c.Median["redis_calls"]
	switch {
	case c.Workload == "denied" || c.Workload == "denied-many" || c.Workload == "lease" || c.Workload == "outage" || c.Subject == nameXTimeRate || c.Subject == nameGathering:
		if calls > 0.01 {
			found = append(found, fmt.Sprintf("%g Redis calls per decision in process", calls))
		}
	case c.Workload == "zipf" && strings.HasPrefix(c.Subject, "tierlimit"):
	case calls == 0:
		found = append(found, "no Redis calls")
	}
	if c.Subject == c.Reference && c.Ratio["decisions_per_second"] != 1 {
		found = append(found, fmt.Sprintf("the ratio to itself is %v", c.Ratio))
	}
	return found
}

// measureForTest measures everything once, or only what matches, for the given seconds. It returns what the run
// writes to files and what it prints.
func measureForTest(t *testing.T, seconds, only string) (got written, markdown, stdout, stderr string) {
	t.Helper()
	dir := t.TempDir()
	jsonFile, markdownFile := filepath.Join(dir, "json"), filepath.Join(dir, "markdown")
	var out, progress bytes.Buffer
	err := run(t.Context(), []string{
		"-redis", redistest.Start(t, "--enable-debug-command", "yes").URL(), "-callers", "2", "-seconds", seconds, "-rounds", "1", "-keys", "50", "-fleet", "2x2",
		"-json", jsonFile, "-markdown", markdownFile, "-only", only,
	}, &out, &progress)
	if err != nil && !errors.Is(err, errNotMet) { // so short a run meets no goal of speed
		t.Fatalf("%v\n%s", err, progress.String())
	}
	text, err := os.ReadFile(jsonFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile(markdownFile)
	if err != nil {
		t.Error(err)
	}
	return got, string(table), out.String(), progress.String()
}

// Everything is measured once, for an instant. Each subject works, is counted, and appears in every format. On a
// machine that stands still for that instant, a cell measures nothing, so cells with something wrong are measured
// again, for longer.
func TestSmoke(t *testing.T) {
	got, markdown, stdout, stderr := measureForTest(t, "0.05", "")
	var again []string
	for _, c := range got.Cells {
		if wrong := c.wrong(); wrong != nil {
			t.Logf("%s is measured again: %s", c.label(), strings.Join(wrong, ", "))
			reference := c
			reference.Subject = c.Reference
			again = append(again, regexp.QuoteMeta(c.label()), regexp.QuoteMeta(reference.label()))
		}
	}
	if again != nil {
		// The rate of calls offered to fleets depends on the reference subject's rate when callers wait.
		again = append(again, regexp.QuoteMeta(label(fleetUniform, size{2, 2}, nameRedisRate)))
		longer, _, _, _ := measureForTest(t, "0.5", "^("+strings.Join(again, "|")+")$")
		for _, c := range longer.Cells {
			if wrong := c.wrong(); wrong != nil {
				t.Errorf("%s: %s", c.label(), strings.Join(wrong, ", "))
			}
		}
	}

	cells := make(map[string]int)
	for _, c := range got.Cells {
		cells[c.Workload]++
		if !strings.Contains(stdout, c.Subject) {
			t.Errorf("the table lacks %s", c.label())
		}
	}
	want := map[string]int{"hot": 15, "alone": 5, "uniform": 15, "zipf": 9, "denied": 4, "denied-many": 3, "lease": 2, "outage": 2, farGroup: 12,
		holdsGroup: 4, holdsAloneGroup: 4, slotsGroup: 3,
		togetherGroup: 4, fleetTogether: 4, fleetUniform: 9, fleetOpen: 8, fleetHot: 8, fleetHalf: 6, fleetCluster: 5, fleetSlots: 3}
	if !maps.Equal(cells, want) {
		t.Errorf("cells %v, want %v", cells, want)
	}
	if len(got.Overload) != 5 || got.Overload[0].Median["peak_per_second"] <= 0 {
		t.Errorf("overload: %v", got.Overload)
	}
	if len(got.Memory) != 10 || len(got.Held) != want["uniform"] {
		t.Errorf("memory of %d subjects in Redis, of %d in process", len(got.Memory), len(got.Held))
	}
	if len(got.Renewals) != len(renewedKeys) {
		t.Errorf("renewals %v", got.Renewals)
	}
	for _, r := range got.Renewals {
		if n := r.Median["commands_per_third"]; n <= 0 || n > float64(r.Keys) {
			t.Errorf("slots of %d keys are renewed by %v commands", r.Keys, n)
		}
	}
	if !strings.Contains(got.Machine.Redis, ".") || got.Machine.Cores == 0 {
		t.Errorf("machine %+v", got.Machine)
	}
	for _, g := range got.Goals {
		if strings.HasPrefix(g.Work, "a key in Redis") && g.Verdict != "met" {
			t.Errorf("%s, %s: %s", g.Work, g.Figure, g.Verdict)
		}
	}
	if !strings.Contains(markdown, "| redis_rate |") || !strings.Contains(markdown, "| not measured |") {
		t.Errorf("Markdown: %s", markdown)
	}
	for line := range strings.Lines(stderr) {
		if strings.Contains(line, " left: ") {
			return
		}
	}
	t.Errorf("it does not say how long it will take: %s", stderr)
}

// -only measures only what it names.
func TestOnly(t *testing.T) {
	var stdout, stderr bytes.Buffer
	err := run(t.Context(), []string{
		"-redis", redistest.Start(t).URL(), "-callers", "1,2", "-seconds", "0.02", "-rounds", "1", "-only", "^hot/2/(redis_rate$|tierlimit, GCRA)",
	}, &stdout, &stderr)
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	if got := stdout.String(); strings.Count(got, "redis_rate  ") != 1 || strings.Contains(got, "1 caller\n") || strings.Contains(got, "MEMORY") {
		t.Errorf("got\n%s", got)
	}
}

// A size of which -only measures nothing is passed over, even where a rate is unknown because of that.
func TestOnlyOneSizeOfAFleet(t *testing.T) {
	var stdout, stderr bytes.Buffer
	err := run(t.Context(), []string{"-redis", redistest.Start(t).URL(), "-fleet", "1x1,2x1", "-seconds", "0.1", "-rounds", "1", "-keys", "50",
		"-only", "^fleet-(uniform|open)/2x1/redis_rate$"}, &stdout, &stderr)
	if err != nil || strings.Count(stdout.String(), ": 2 processes of 1 caller\n") != 2 || strings.Contains(stdout.String(), "Memory in process") {
		t.Errorf("error %v, and it prints\n%s", err, stdout.String())
	}
	if progress := stderr.String(); strings.Contains(progress, "1 processes") {
		t.Errorf("it says that it measures another size:\n%s", progress)
	}
}

// An expression that matches nothing is a mistake, and so is one that leaves out what a rate of calls depends on.
func TestOnlyWhatCanBeMeasured(t *testing.T) {
	redis := redistest.Start(t).URL()
	for _, only := range []string{"^uniform/512/redisrate$", "^fleet-open/"} {
		var stdout bytes.Buffer
		err := run(t.Context(), []string{"-redis", redis, "-fleet", "1x1", "-seconds", "0.02", "-rounds", "1", "-keys", "50", "-only", only}, &stdout, io.Discard)
		if !errors.Is(err, errUsage) {
			t.Errorf("-only %s: %v\n%s", only, err, stdout.String())
		}
	}
}

// What was measured is not lost if a file cannot be written, or if something later cannot be measured.
func TestWhatWasMeasuredIsTold(t *testing.T) {
	redis := redistest.Start(t).URL()
	for what, args := range map[string][]string{
		"no folder for the file": {"-json", filepath.Join(t.TempDir(), "none", "json"), "-only", "^hot/2/redis_rate$"},
		"no server to start":     {"-redis-server", "none", "-fleet", "1x1", "-only", "^(hot/2|fleet-cluster/1x1)/redis_rate$"},
	} {
		var stdout, stderr bytes.Buffer
		err := run(t.Context(), append(args, "-redis", redis, "-callers", "2", "-seconds", "0.02", "-rounds", "1", "-keys", "50"), &stdout, &stderr)
		if err == nil || !strings.Contains(stdout.String(), "redis_rate  ") {
			t.Errorf("%s: error %v, and it prints\n%s", what, err, stdout.String())
		}
	}
}

// Overload is left out, and all else is measured, if the server does not let its clients keep it busy.
func TestServerThatDoesNotSleep(t *testing.T) {
	var out, progress bytes.Buffer
	err := run(t.Context(), []string{
		"-redis", redistest.Start(t).URL(), "-callers", "2", "-seconds", "0.05", "-rounds", "1", "-keys", "50",
		"-only", "^(overload|alone)/.*(tierlimit, GCRA|plain GCRA)$",
	}, &out, &progress)
	if err != nil && !errors.Is(err, errNotMet) {
		t.Errorf("%v", err)
	}
	if said := progress.String(); !strings.Contains(said, "overload: left out, because the server must be started with --enable-debug-command yes") {
		t.Errorf("it said\n%s", said)
	}
	if told := out.String(); strings.Contains(told, "goodput by the peak") || !strings.Contains(told, "one caller who asks each in turn") {
		t.Errorf("it told\n%s", told)
	}
}

func TestServerOfItsOwn(t *testing.T) {
	s, err := startServer(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	client, err := newControl(s.url())
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	s.stop()
	select {
	case <-s.ended:
	default:
		t.Error("the server runs on")
	}
	if _, err := os.Stat(s.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory is left: %v", err)
	}
}

func TestMistakesOnTheCommandLine(t *testing.T) {
	for _, args := range []string{"-callers 0", "-callers 8,x", "-seconds NaN", "-rounds 0", "-keys 0", "-pool -1", "-fleet 4", "-fleet 0x1", "-fleet 4x1x", "-only (", "stray", "-no-such-flag"} {
		if _, err := parseSettings(strings.Fields(args), io.Discard); !errors.Is(err, errUsage) {
			t.Errorf("%s: %v", args, err)
		}
	}
	s, err := parseSettings([]string{"-callers", "1, 64", "-fleet", "4x1, 16x4", "-seconds", "0.5"}, io.Discard)
	if err != nil || len(s.Callers) != 2 || s.Callers[1] != 64 || len(s.Fleet) != 2 || s.Fleet[1] != (size{16, 4}) || s.span.Milliseconds() != 500 {
		t.Errorf("%+v, %v", s, err)
	}
}
