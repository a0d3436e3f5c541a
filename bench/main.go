// Command bench measures tierlimit against other limiters and against the raw commands that all of them use, in one
// run on one Redis server.
//
//	go -C bench run . [flags]
//
// README.md explains what it measures and how to read the result.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/pprof"
	"syscall"

	"github.com/tierlimit/tierlimit/tiered"
)

func main() {
	if os.Getenv(memberVariable) != "" {
		os.Exit(beMember())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures, prints the tables on stdout and its progress on stderr. It returns errNotMet if a goal was missed.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	s, err := parseSettings(args, stderr)
	if err != nil {
		return err
	}
	if s.Instructions {
		return countInstructions(ctx, s.RedisServer, stdout)
	}
	url := s.RedisURL
	if url == "" {
		server, err := startServer(ctx, s.RedisServer)
		if err != nil {
			return err
		}
		defer server.stop()
		url = server.url()
	}
	if s.CPUProfile != "" {
		file, err := os.Create(s.CPUProfile)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		if err := pprof.StartCPUProfile(file); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}

	// The report counts and shows errors. During an outage, go-redis would log many of them.
	tiered.LogOfRedis(nil)

	b, err := newBench(ctx, s, url, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if s.Growth != "" {
		pictures, err := b.measureGrowth(ctx)
		if err != nil {
			return err
		}
		return drawInto(s.Growth, pictures)
	}
	// A run takes half an hour. What it has measured is reported even if it ends early, or if a file cannot be written.
	err = b.measureAll(ctx)
	return errors.Join(err, b.report.tell(s, stdout))
}
