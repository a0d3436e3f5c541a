package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// Everything is measured once, for an instant: each subject works, is counted
// and comes out in every format.
func TestSmoke(t *testing.T) {
	dir := t.TempDir()
	jsonFile, markdownFile := filepath.Join(dir, "json"), filepath.Join(dir, "markdown")
	var stdout, stderr bytes.Buffer
	err := run(t.Context(), []string{
		"-redis", redistest.Start(t).URL(), "-callers", "2", "-seconds", "0.05", "-rounds", "1", "-keys", "50",
		"-json", jsonFile, "-markdown", markdownFile,
	}, &stdout, &stderr)
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}

	text, err := os.ReadFile(jsonFile)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Machine machine
		Cells   []struct {
			Group, Reference, Subject, Flaws string
			Sound                            bool
			Median, Ratio                    map[string]float64
		}
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Cells) != 14 {
		t.Errorf("%d cells, want 6 subjects twice and 2 in process", len(got.Cells))
	}
	for _, c := range got.Cells {
		where := c.Group + ", " + c.Subject
		if !c.Sound {
			t.Errorf("%s: %s", where, c.Flaws)
		}
		if c.Median["decisions_per_second"] <= 0 || c.Median["p99_us"] < c.Median["p50_us"] {
			t.Errorf("%s: medians %v", where, c.Median)
		}
		inProcess := strings.Contains(c.Group, "in process")
		if calls := c.Median["redis_calls"]; !inProcess && calls == 0 || inProcess && calls > 0.01 {
			t.Errorf("%s: %g Redis calls per decision", where, calls)
		}
		if c.Subject == c.Reference && c.Ratio["decisions_per_second"] != 1 {
			t.Errorf("%s: the ratio to itself is %v", where, c.Ratio)
		}
		if !strings.Contains(stdout.String(), c.Subject) {
			t.Errorf("the table lacks %s", where)
		}
	}
	if !strings.Contains(got.Machine.Redis, ".") || got.Machine.Cores == 0 {
		t.Errorf("machine %+v", got.Machine)
	}
	if text, err := os.ReadFile(markdownFile); err != nil || !strings.Contains(string(text), "| redis_rate |") {
		t.Errorf("Markdown: %v\n%s", err, text)
	}
}

func TestServerOfItsOwn(t *testing.T) {
	s, err := startServer(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	client, err := newClient(s.url(), 1)
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
	for _, args := range []string{"-callers 0", "-callers 8,x", "-seconds NaN", "-rounds 0", "-keys 0", "-pool -1", "stray", "-no-such-flag"} {
		if _, err := parseSettings(strings.Fields(args), io.Discard); !errors.Is(err, errUsage) {
			t.Errorf("%s: %v", args, err)
		}
	}
	s, err := parseSettings([]string{"-callers", "1, 64", "-seconds", "0.5"}, io.Discard)
	if err != nil || len(s.Callers) != 2 || s.Callers[1] != 64 || s.span.Milliseconds() != 500 {
		t.Errorf("%+v, %v", s, err)
	}
}
