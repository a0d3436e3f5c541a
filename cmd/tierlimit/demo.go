package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/demo"
	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/page"
	"github.com/tierlimit/tierlimit/internal/live"
	"github.com/tierlimit/tierlimit/limit"
)

const demoUsage = `Usage: tierlimit demo [flags] [FILE]

Plays a log of requests (in the formats of replay; without FILE the built-in day), faster
than it was recorded, against four limiters that share one Redis, and serves a page on which
everybody who can reach it can cut and restore the limiters' connections to Redis. Ctrl-C
ends it.

Flags:
`

// demoFlags is the command line of demo.
type demoFlags struct {
	limit limit.Limit
	logFlags
	speed   int
	redis   string
	address string
	hosts   []string
}

func parseDemoFlags(args []string, stdout io.Writer) (demoFlags, error) {
	f := demoFlags{limit: limit.Per(20, 10*time.Second)}
	set := newFlags("demo")
	limitFlag(set, &f.limit, "the limit for each key, in real time, as `QUOTA/WINDOW` (default 20/10s)")
	f.logFlags.add(set)
	set.IntVar(&f.speed, "speed", 120, "play the log this many `times` as fast as it was recorded")
	redisFlag(set, &f.redis, "")
	set.StringVar(&f.address, "addr", "127.0.0.1:8080", "`host:port` to serve the page at; port 0 for any free port")
	set.Func("host", "a host `name` to serve the page under, besides localhost and IP addresses (may be repeated)", func(s string) error {
		f.hosts = append(f.hosts, s)
		_, err := live.NewHosts(s)
		return err
	})
	if err := parseFlags(set, args, demoUsage, 1, stdout); err != nil {
		return f, err
	}
	switch {
	case f.speed < demo.MinSpeed || f.speed > demo.MaxSpeed:
		return f, usageError{fmt.Errorf("-speed %d: must be between %d and %d", f.speed, demo.MinSpeed, demo.MaxSpeed)}
	case f.limit.IsCalendar():
		return f, usageError{fmt.Errorf("-limit %v: the demo needs a limit with a window of fixed length, like 20/10s", f.limit)}
	case f.limit.IsConcurrent():
		return f, hasWindow("demo", f.limit)
	}
	f.file = set.Arg(0)
	return f, nil
}

func runDemo(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	f, err := parseDemoFlags(args, stdout)
	if err != nil {
		return err
	}
	tr, err := loadRequests(ctx, "demo", f.logFlags, stdin, stderr)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", f.address)
	if err != nil {
		return usageError{fmt.Errorf("-addr %q: %w", f.address, err)}
	}
	defer listener.Close()
	found, err := findRedis(f.redis, stderr)
	if err != nil {
		return err
	}
	defer found.stop()
	if err := found.reach(ctx); err != nil {
		return err
	}
	d, err := demo.Start(demo.Config{Trace: tr, Limit: f.limit, Speed: f.speed, Redis: found.options, Hosts: f.hosts})
	if err != nil {
		return explained(err)
	}
	defer func() { err = errors.Join(err, d.Close()) }()

	server := &http.Server{Handler: d.Handler(fileName(f.file), found.shown), ReadHeaderTimeout: 10 * time.Second}
	defer server.Close() // also ends the streams of open pages
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	fmt.Fprintf(stdout, "%s of %s, %d times as fast; limit %v; Redis: %s\n",
		page.Count(tr.Len(), "request"), page.Count(tr.Keys(), "key"), f.speed, f.limit, found.shown)
	fmt.Fprintf(stdout, "http://%s/ (Ctrl-C ends it)\n", listener.Addr())
	select {
	case <-ctx.Done():
		return nil
	case err := <-served:
		return err
	}
}
