// Command outage takes Redis away from a fleet of real processes, in all the ways that happen in practice. It
// measures how much the fleet admits meanwhile and how long calls take.
//
//	go -C bench/outage run . [flags]
//
// README.md describes the scenarios and how to read the report.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/tierlimit/tierlimit/tiered"
)

// errNotMet is returned if everything ran and at least one goal was missed.
var errNotMet = errors.New("not all goals are met")

func main() {
	if isWorker() {
		workerMain()
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "outage:", err)
		os.Exit(1)
	}
}

// run plays the scenarios, prints the report on stdout and its progress on stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	tiered.LogOfRedis(nil) // go-redis would log each failed dial of a server that was killed on purpose
	s, err := parseSettings(args, stderr)
	if err != nil {
		return err
	}
	r := report{Settings: s}
	for _, sc := range s.chosen {
		fmt.Fprintf(stderr, "%s ...\n", sc.name)
		o, failed := play(ctx, s, sc)
		if failed != nil {
			err = fmt.Errorf("%s: %w", sc.name, failed)
			break
		}
		r.Outcomes = append(r.Outcomes, o)
	}
	// The scenarios take a quarter of an hour. The results so far are reported even if one fails, or if a file cannot be written.
	err = errors.Join(err, r.print(stdout), r.writeFiles(s))
	if !r.met() {
		err = errors.Join(err, errNotMet)
	}
	return err
}
