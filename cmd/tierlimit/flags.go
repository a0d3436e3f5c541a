package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/accesslog"
	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/trace"
	"github.com/tierlimit/tierlimit/limit"
)

// newFlags returns the flag set of a command. It prints nothing by itself: main reports errors, once.
func newFlags(command string) *flag.FlagSet {
	set := flag.NewFlagSet(command, flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.Usage = func() {}
	return set
}

// parseFlags parses args. If they ask for help, it prints the usage and the flags. No more than most
// arguments may be left over. If most is 1, the first line of usage ends with the argument's name.
func parseFlags(set *flag.FlagSet, args []string, usage string, most int, stdout io.Writer) error {
	if err := set.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprint(stdout, usage)
			set.SetOutput(stdout)
			set.PrintDefaults()
			return err
		}
		return usageError{fmt.Errorf("%s (\"tierlimit %s -h\" lists the flags)", explainedFlag(set, err), set.Name())}
	}
	if i := slices.Index(set.Args(), ""); i >= 0 && set.NArg() <= most {
		what := fmt.Sprintf("argument %d", i+1)
		if most == 1 {
			what = "the " + argument(usage)
		}
		return usageError{fmt.Errorf("%s is empty; is it a shell variable that is not set?", what)}
	}
	if set.NArg() > most {
		if most == 0 {
			return usageError{fmt.Errorf("%s takes flags only, got %q", set.Name(), set.Args())}
		}
		if most == 1 {
			advice := "flags go before it"
			if argument(usage) == "FILE" {
				advice += `; several logs are read by "zcat -f FILE... | tierlimit ` + set.Name() + ` -"`
			}
			return usageError{fmt.Errorf("at most one %s may be given, got %q (%s)", argument(usage), set.Args(), advice)}
		}
		return usageError{fmt.Errorf("at most %d arguments may be given, got %q (flags go before them)", most, set.Args())}
	}
	return nil
}

// argument returns the name of a command's only argument.
func argument(usage string) string {
	line, _, _ := strings.Cut(usage, "\n")
	return strings.Trim(line[strings.LastIndexByte(line, ' ')+1:], "[]")
}

// explainedFlag adds what values a flag takes, if package flag says only "parse error".
func explainedFlag(set *flag.FlagSet, err error) string {
	text, isParse := strings.CutSuffix(err.Error(), ": parse error")
	_, name, _ := strings.Cut(text, " for flag -")
	found := set.Lookup(name)
	if !isParse || found == nil {
		return err.Error()
	}
	if getter, ok := found.Value.(flag.Getter); ok {
		switch getter.Get().(type) {
		case int, int64:
			return text + ": must be a whole number"
		case time.Duration:
			return text + ": must be a duration like 30s or 5m"
		}
	}
	return err.Error()
}

// limitFlag adds the flag -limit.
func limitFlag(set *flag.FlagSet, to *limit.Limit, usage string) {
	set.Func("limit", usage, func(s string) (err error) {
		*to, err = limit.Parse(s)
		return err
	})
}

// logFlags are the flags that say which log to read, and how.
type logFlags struct {
	file string // "" for the built-in log
	key  accesslog.KeyKind
	cost accesslog.CostKind
	most trace.Bounds
}

func (f *logFlags) add(set *flag.FlagSet) {
	f.key, f.cost = accesslog.KeyHost, accesslog.CostRequests
	set.Func("key", "what to limit: `host|path|host+path|user` (default host)", func(s string) (err error) {
		f.key, err = accesslog.ParseKeyKind(s)
		return err
	})
	boundFlags(set, &f.most)
}

// boundFlags adds the flags that bound how much of a log is kept.
func boundFlags(set *flag.FlagSet, most *trace.Bounds) {
	*most = trace.Default
	atLeastOne := func(n *int) func(string) error {
		return func(s string) (err error) {
			if *n, err = strconv.Atoi(s); err != nil || *n < 1 {
				return errors.New("must be a whole number, at least 1")
			}
			return nil
		}
	}
	set.Func("max-requests", fmt.Sprintf("refuse a log with more requests than this `number` (default %d)", most.Requests), atLeastOne(&most.Requests))
	set.Func("max-keys", fmt.Sprintf("refuse a log with more distinct keys than this `number` (default %d)", most.Keys), atLeastOne(&most.Keys))
}

// partFlag adds a flag whose value is a part of a whole.
func partFlag(set *flag.FlagSet, name, usage string, take func(float64)) {
	set.Func(name, usage, func(s string) error {
		value, err := part(s)
		take(value)
		return err
	})
}

// part reads a part of a whole: "0.05" or "5%".
func part(s string) (float64, error) {
	number, percent := strings.CutSuffix(s, "%")
	number = strings.TrimSpace(number)
	f, err := strconv.ParseFloat(number, 64)
	switch hundredth, failed := strconv.ParseFloat(number+"e-2", 64); {
	case err != nil:
		return 0, fmt.Errorf("%q is not a fraction like 0.05 or 5%%", s)
	case percent && failed == nil:
		return hundredth, nil // 0.7 / 100 is rounded twice, and is less than 0.007
	case percent: // the number has an exponent of its own
		return f / 100, nil
	}
	return f, nil
}
