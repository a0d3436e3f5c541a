package main

import (
	"flag"
	"fmt"
	"io"
	"strings"
	"time"
)

// settings are the flags and the defaults that follow from them.
type settings struct {
	Window    time.Duration `json:"window"`
	Outage    time.Duration `json:"outage"`
	Quota     int64         `json:"quota"`
	Load      float64       `json:"load"` // offered load, in multiples of the limit
	Deadline  time.Duration `json:"deadline"`
	Keys      int           `json:"keys"`  // attacked keys; the ledger has room for a tenth of them
	Debts     int           `json:"debts"` // keys that hold debt at the recovery
	Schedules int           `json:"schedules"`
	Seed      uint64        `json:"seed"`

	json, markdown, csv, svg string
	chosen                   []scenario
}

func parseSettings(args []string, stderr io.Writer) (settings, error) {
	s := settings{Load: 3, Deadline: 50 * time.Millisecond}
	flags := flag.NewFlagSet("outage", flag.ContinueOnError)
	flags.SetOutput(stderr)
	names := flags.String("scenario", "all", "scenarios to play, separated by commas: all, or of "+strings.Join(scenarioNames(), ", "))
	quick := flags.Bool("quick", false, "a window of 2s, an outage of 6s and a tenth of the keys, unless set")
	flags.DurationVar(&s.Window, "window", 0, "window of the limit (default 10s)")
	flags.DurationVar(&s.Outage, "outage", 0, "how long Redis is away (default 3 windows)")
	flags.Int64Var(&s.Quota, "quota", 1000, "units per window")
	flags.IntVar(&s.Keys, "keys", 0, "keys that are attacked (default 1,000,000)")
	flags.IntVar(&s.Debts, "debts", 0, "keys that hold debt at the recovery (default 100,000)")
	flags.IntVar(&s.Schedules, "schedules", 3, "random schedules of faults to play")
	flags.Uint64Var(&s.Seed, "seed", 0, "of the first random schedule and of all loads (default: by the clock)")
	flags.StringVar(&s.json, "json", "", "file to write the report to as JSON")
	flags.StringVar(&s.markdown, "markdown", "", "file to write the report to as Markdown")
	flags.StringVar(&s.csv, "csv", "", "file to write the units admitted over time to, by tier, of all scenarios")
	flags.StringVar(&s.svg, "svg", "", "file to draw the first scenario's timeline to")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q: scenarios are chosen with -scenario", flags.Arg(0))
	}
	s.setDefaults(*quick)
	if s.Window < 500*time.Millisecond || s.Outage < s.Window || s.Quota < 40 {
		return s, fmt.Errorf("-window %v must be at least 500ms, -outage %v at least a window, -quota %d at least 40", s.Window, s.Outage, s.Quota)
	}
	// With fewer there would be nothing to judge.
	if s.Keys < 1000 || s.Debts < 1000 || s.Schedules < 1 {
		return s, fmt.Errorf("-keys %d and -debts %d must be at least 1,000, -schedules %d at least 1", s.Keys, s.Debts, s.Schedules)
	}
	var err error
	s.chosen, err = chooseScenarios(*names)
	return s, err
}

func (s *settings) setDefaults(quick bool) {
	window, keys, debts := 10*time.Second, 1_000_000, 100_000
	if quick {
		window, keys, debts = 2*time.Second, 100_000, 10_000
	}
	if s.Window == 0 {
		s.Window = window
	}
	if s.Outage == 0 {
		s.Outage = 3 * s.Window
	}
	if s.Keys == 0 {
		s.Keys = keys
	}
	if s.Debts == 0 {
		s.Debts = debts
	}
	if s.Seed == 0 {
		s.Seed = uint64(time.Now().UnixNano())
	}
}
