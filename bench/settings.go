package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// settings are the choices on the command line.
type settings struct {
	RedisServer  string         `json:"-"`
	RedisURL     string         `json:"-"` // may hold a password
	Callers      []int          `json:"callers"`
	Fleet        []size         `json:"fleet"`
	Seconds      float64        `json:"seconds"`
	Rounds       int            `json:"rounds"`
	Keys         int            `json:"keys"`
	Pool         int            `json:"pool"`
	Only         string         `json:"only"`
	JSON         string         `json:"-"`
	Markdown     string         `json:"-"`
	CPUProfile   string         `json:"-"`
	Growth       string         `json:"-"`
	Instructions bool           `json:"-"`
	span         time.Duration  // Seconds
	only         *regexp.Regexp // Only
}

// errUsage is wrapped by errors about the command line.
var errUsage = errors.New("usage")

func parseSettings(args []string, stderr io.Writer) (settings, error) {
	s := settings{Callers: []int{1, 2, 4, 8, 16, 32, 64, 512}, Fleet: defaultFleet}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&s.RedisServer, "redis-server", "", "`path` or name of the server to start (default $"+serverVariable+", else redis-server, else valkey-server)")
	f.StringVar(&s.RedisURL, "redis", "", "`URL` of a server to use instead of starting one; the figures for Redis's CPU then include what others do on it")
	f.Func("callers", "how many callers at once, a comma-separated `list` (default 1,2,4,8,16,32,64,512)", s.setCallers)
	f.Func("fleet", "sizes of fleets, a comma-separated `list` of processes x callers in each (default 4x1,4x4,4x16 and so on with 16 and 32 processes)", s.setFleet)
	f.Float64Var(&s.Seconds, "seconds", 0.5, "length of one measurement")
	f.IntVar(&s.Rounds, "rounds", 3, "measurements of each cell, of which the median is taken")
	f.IntVar(&s.Keys, "keys", 100_000, "keys of the workloads with many keys; ten times as many of what is denied in process")
	f.IntVar(&s.Pool, "pool", 0, "connections in each client's pool (default go-redis's own, 10 per core)")
	f.StringVar(&s.Only, "only", "", "measure only what this regular `expression` matches in WORKLOAD/CALLERS/SUBJECT; a ratio needs its reference too")
	f.StringVar(&s.JSON, "json", "", "write every figure to this `file`")
	f.StringVar(&s.Markdown, "markdown", "", "write the tables to this `file`")
	f.StringVar(&s.Growth, "growth", "", "measure how the cost of a decision grows, and nothing else, and draw it into this `folder`")
	f.BoolVar(&s.Instructions, "instructions", false, "count the instructions that Redis executes for a decision, and nothing else; needs valgrind")
	f.StringVar(&s.CPUProfile, "cpuprofile", "", "write a CPU profile to this `file`; samples are labelled cell=WORKLOAD/CALLERS/SUBJECT")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return s, err
		}
		return s, fmt.Errorf("%w: %w", errUsage, err)
	}
	// The bounds prevent runs that take all day because of a typing error.
	for _, bad := range []struct {
		is   bool
		what string
	}{
		{f.NArg() > 0, "there are no arguments, only flags: " + strings.Join(f.Args(), " ")},
		{!(s.Seconds >= 0.01 && s.Seconds <= 60), "-seconds must be between 0.01 and 60"},
		{s.Rounds < 1 || s.Rounds > 100, "-rounds must be between 1 and 100"},
		{s.Keys < 1 || s.Keys > 10_000_000, "-keys must be between 1 and 10,000,000"},
		{s.Pool < 0 || s.Pool > 10_000, "-pool must be between 1 and 10,000, or 0 for the default"},
	} {
		if bad.is {
			return s, fmt.Errorf("%w: %s", errUsage, bad.what)
		}
	}
	s.span = time.Duration(s.Seconds * float64(time.Second))
	var err error
	if s.only, err = regexp.Compile(s.Only); err != nil {
		return s, fmt.Errorf("%w: -only: %w", errUsage, err)
	}
	return s, nil
}

// onlyContenders returns the contenders that -only lets measure at some size, or nil if there are none.
func (s *settings) onlyContenders(workload string, sizes []size, contenders []contender) (kept []contender) {
	for _, c := range contenders {
		for _, n := range sizes {
			if s.only.MatchString(label(workload, n, c.name)) {
				kept = append(kept, c)
				break
			}
		}
	}
	return kept
}

func (s *settings) setCallers(list string) error {
	s.Callers = nil
	for _, text := range strings.Split(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 1 || n > 10_000 {
			return fmt.Errorf("%q is not a number between 1 and 10,000", text)
		}
		s.Callers = append(s.Callers, n)
	}
	return nil
}

// maxMembers is more processes than any machine can usefully measure.
const maxMembers = 256

func (s *settings) setFleet(list string) error {
	s.Fleet = nil
	for _, text := range strings.Split(list, ",") {
		var z size
		if n, err := fmt.Sscanf(strings.TrimSpace(text)+"\n", "%dx%d\n", &z.processes, &z.callers); n != 2 || err != nil ||
			z.processes < 1 || z.processes > maxMembers || z.callers < 1 || z.callers > 10_000 {
			return fmt.Errorf("%q is not a size such as 16x4: 1 to %d processes of 1 to 10,000 callers", text, maxMembers)
		}
		s.Fleet = append(s.Fleet, z)
	}
	return nil
}
