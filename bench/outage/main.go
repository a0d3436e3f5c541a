// Command outage takes Redis away from a fleet of real processes, in all the ways
// that happen, and measures what the fleet lets through meanwhile and how long calls
// take.
//
//	go -C bench/outage run . [flags]
//
// What the scenarios are and how to read the report is in README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/tierlimit/tierlimit/tiered"
)

// errNotMet: everything ran, and some goal was missed.
var errNotMet = errors.New("not all goals are met")

func main() {
	if isWorker() {
		workerMain()
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "outage:", err)
		os.Exit(1)
	}
}

// run plays the scenarios, prints the report on stdout and how it goes on stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	tiered.LogOfRedis(nil) // go-redis would log each failed dial of a server that was killed on purpose
	s, err := parseSettings(args, stderr)
	if err != nil {
		return err
	}
	r := report{Settings: s}
	for _, sc := range s.chosen {
		fmt.Fprintf(stderr, "%s ...\n", sc.name)
		o, err := play(ctx, s, sc)
		if err != nil {
			return fmt.Errorf("%s: %w", sc.name, err)
		}
		r.Outcomes = append(r.Outcomes, o)
	}
	if err := r.writeFiles(s); err != nil {
		return err
	}
	if err := r.print(stdout); err != nil {
		return err
	}
	if !r.met() {
		return errNotMet
	}
	return nil
}
