package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/accesslog"
	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/nasa"
	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/page"
	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/replay"
	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/trace"
	"github.com/tierlimit/tierlimit/limit"
)

const replayUsage = `Usage: tierlimit replay [flags] [FILE]

Replays a log of requests (plain or gzip, "-" for standard input) through a fleet of
limiters that share one Redis, in virtual time, once per algorithm, and shows what each
did against the textbook's exact log. Without FILE it replays a day of the NASA web server
of 1995.

The log may be in one of these formats:
  - that of a web server (Common or Combined Log Format, or W3C's with its header, as in IIS),
    of Envoy, HAProxy, Squid, uWSGI, Tornado or Rails, of Amazon's load balancers, S3 or CloudFront;
  - JSON, in lines or as an array: objects with a time, a host or key, and optionally a user,
    path, bytes and cost, by the names of many programs, such as Caddy, Traefik, Kong, Cloudflare
    and Azure; or the same names and values as slog.TextHandler writes them;
  - CSV whose first line has these names for its columns;
  - lines of a time (RFC 3339, or a number since 1970), a key, and the cost if it is not 1.
Requests are sorted by their times, so parts of a log may come in any order, as in
"zcat -f access.log* | tierlimit replay -".

Flags:
`

// replayFlags is the command line of replay.
type replayFlags struct {
	limit     limit.Limit
	instances int
	logFlags
	candidates []candidate
	redis      string
	json       bool
}

func parseReplayFlags(args []string, stdout io.Writer) (replayFlags, error) {
	f := replayFlags{limit: limit.PerMinute(10)}
	set := newFlags("replay")
	limitFlag(set, &f.limit, "the limit for each key, as `QUOTA/WINDOW` (default 10/1m)")
	set.IntVar(&f.instances, "instances", 4, "`number` of limiter instances that share the Redis")
	f.logFlags.add(set)
	set.Func("cost", "how many units a request takes: `requests|bytes|kB` (default requests: 1, or what the log says)", func(s string) (err error) {
		f.cost, err = accesslog.ParseCostKind(s)
		return err
	})
	set.Func("algorithm", "replay this `algorithm` only (may be repeated; default all): "+names(), func(s string) error {
		c, err := parseCandidate(s)
		f.candidates = append(f.candidates, c)
		return err
	})
	redisFlag(set, &f.redis, "")
	set.BoolVar(&f.json, "json", false, "print JSON")
	if err := parseFlags(set, args, replayUsage, 1, stdout); err != nil {
		return f, err
	}
	if f.instances < 1 || f.instances > 1000 {
		return f, usageError{fmt.Errorf("-instances %d: must be between 1 and 1000", f.instances)}
	}
	if err := hasWindow("replay", f.limit); err != nil {
		return f, err
	}
	for _, c := range f.candidates {
		if err := c.check(f.limit); err != nil {
			return f, usageError{fmt.Errorf("-algorithm %s: %w", c.name, err)}
		}
	}
	if f.candidates == nil {
		for _, a := range limit.Algorithms() {
			if c := (candidate{name: a.String(), algorithm: a}); c.check(f.limit) == nil {
				f.candidates = append(f.candidates, c)
			}
		}
	}
	f.file = set.Arg(0)
	return f, nil
}

// hasWindow returns an error for a concurrency limit, because a log of requests does not say how long
// each request took.
func hasWindow(command string, l limit.Limit) error {
	if !l.IsConcurrent() {
		return nil
	}
	return usageError{fmt.Errorf("-limit %v: this is a concurrency limit, and a log does not say when requests end: %s needs a limit with a window, like %d/1m; \"tierlimit plan -limit %v\" says what this one costs",
		l, command, l.Quota(), l)}
}

func names() string {
	var all []string
	for _, a := range limit.Algorithms() {
		all = append(all, a.Name())
	}
	return strings.Join(all, ", ") + "; with parameters, as in sliding-counter:k=60,estimate or gcra:burst=10%"
}

// report is the JSON form of a replay.
type report struct {
	Requests      int             `json:"requests"`
	Keys          int             `json:"keys"`
	BadLines      int             `json:"bad_lines"`
	Limit         int64           `json:"limit"`
	WindowSeconds float64         `json:"window_seconds"`
	Instances     int             `json:"instances"`
	Redis         string          `json:"redis"`
	Results       []replay.Result `json:"results"`
}

func runReplay(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	f, err := parseReplayFlags(args, stdout)
	if err != nil {
		return err
	}
	return f.run(ctx, stdin, stdout, stderr)
}

func (f replayFlags) run(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
	server, err := findRedis(f.redis, stderr)
	if err != nil {
		return err
	}
	defer server.stop()
	if err := server.reach(ctx); err != nil {
		return err
	}
	tr, err := loadTrace(ctx, f.logFlags, stdin, stderr)
	if err != nil {
		return err
	}
	rep := report{
		Requests: tr.Len(), Keys: tr.Keys(), BadLines: tr.BadLines,
		Limit: f.limit.Quota(), WindowSeconds: f.limit.Window().Seconds(),
		Instances: f.instances, Redis: server.shown,
	}
	if !f.json {
		printHead(stdout, rep, f)
	}
	bar := newProgress(stderr, tr.Len()*len(f.candidates))
	defer bar.finish()
	err = f.replayAll(ctx, tr, bar, func(r replay.Result) {
		rep.Results = append(rep.Results, r)
		if !f.json {
			bar.clear()
			printRow(stdout, rep.Requests, f, r)
		}
	})
	if err != nil {
		return err
	}
	bar.finish()
	if f.json {
		encoder := json.NewEncoder(stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(rep)
	}
	return printFoot(stdout, rep)
}

// replayAll replays the trace under each candidate, with as many replays at once as there are
// processors. It calls done with each result in the candidates' order, as soon as the earlier results
// are there.
func (f replayFlags) replayAll(ctx context.Context, tr *trace.Trace, bar progress, done func(replay.Result)) error {
	quiet, err := f.quiet(tr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	exact := replay.Exact(tr, f.limit, quiet)
	results := make([]replay.Result, len(f.candidates))
	finished := make([]chan error, len(f.candidates))
	processors := make(chan struct{}, runtime.GOMAXPROCS(0))
	var running sync.WaitGroup
	defer running.Wait() // each replay removes what it has left in Redis
	defer cancel()
	for i := range f.candidates {
		finished[i] = make(chan error, 1)
	}
	running.Go(func() {
		for i, c := range f.candidates {
			processors <- struct{}{}
			running.Go(func() {
				defer func() { <-processors }()
				var err error
				results[i], err = f.replayOne(ctx, tr, c, quiet, exact, bar.add)
				finished[i] <- err
			})
		}
	})
	for i, c := range f.candidates {
		if err := <-finished[i]; err != nil {
			return fmt.Errorf("%s: %w", c.name, explained(err))
		}
		done(results[i])
	}
	return nil
}

// quiet returns the requests about which Redis need not be asked. A Redis given by the user is asked
// about all requests, because the memory of its keys is measured.
func (f replayFlags) quiet(tr *trace.Trace) (*replay.Quiet, error) {
	if f.redis != "" {
		return nil, nil
	}
	var limits []limit.Limit
	for _, c := range f.candidates {
		l, err := c.limit(f.limit)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		limits = append(limits, l)
	}
	return replay.FindQuiet(tr, limits...), nil
}

func (f replayFlags) replayOne(ctx context.Context, tr *trace.Trace, c candidate, quiet *replay.Quiet, exact []bool, progress func(int)) (replay.Result, error) {
	l, err := c.limit(f.limit)
	if err := cmp.Or(err, ctx.Err()); err != nil {
		return replay.Result{}, err
	}
	server, err := findRedis(f.redis, io.Discard) // an embedded one per replay: it runs one script at a time
	if err != nil {
		return replay.Result{}, err
	}
	defer server.stop()
	if server.options.ReadTimeout == 0 { // the URL does not set it
		server.options.ReadTimeout, server.options.WriteTimeout = replay.Patience, replay.Patience
	}
	result, err := replay.Run(ctx, replay.Config{
		Trace: tr, Quiet: quiet, Limit: l, Instances: f.instances, Measurable: f.redis != "", Passing: f.redis == "", Progress: progress,
		Client: func() *redis.Client { return redis.NewClient(server.options) },
	}, c.algorithm, exact)
	result.Configuration = c.name
	return result, err
}

// read reads a log to its end, or until ctx is done. A terminal or a pipe may send nothing for any
// length of time; then the goroutine that reads it is left behind.
func (f logFlags) read(ctx context.Context, in io.Reader) (*accesslog.Reader, *trace.Trace, error) {
	type log struct {
		reader *accesslog.Reader
		trace  *trace.Trace
		err    error
	}
	done := make(chan log, 1)
	go func() {
		reader, err := accesslog.NewReader(bufio.NewReaderSize(in, 1<<16))
		if err != nil {
			done <- log{err: err}
			return
		}
		tr, err := trace.Load(reader, f.key, f.cost, f.most)
		done <- log{reader, tr, err}
	}()
	select {
	case l := <-done:
		return l.reader, l.trace, l.err
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

// fewRequests is the length of a log that may well be of one client.
const fewRequests = 20

// openFile opens a file for reading. To open a named pipe takes until another process writes to it, so that the open
// is left behind if ctx ends before.
func openFile(ctx context.Context, name string) (*os.File, error) {
	type opened struct {
		file *os.File
		err  error
	}
	done := make(chan opened, 1)
	go func() {
		file, err := os.Open(name)
		done <- opened{file, err}
	}()
	select {
	case o := <-done:
		return o.file, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// loadTrace reads a log: from a file, from standard input ("-"), or the built-in log ("").
func loadTrace(ctx context.Context, f logFlags, stdin io.Reader, stderr io.Writer) (*trace.Trace, error) {
	var in io.Reader
	name := f.file
	switch name {
	case "":
		in = nasa.Open()
	case "-":
		in = stdin
	default:
		file, err := openFile(ctx, name)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	reader, tr, err := f.read(ctx, in)
	switch {
	case errors.Is(err, trace.ErrKeys):
		return nil, usageError{fmt.Errorf("reading %s: %w: limit by another -key, or raise -max-keys: each takes some 200 bytes, and more in Redis", fileName(name), err)}
	case errors.Is(err, trace.ErrRequests):
		return nil, usageError{fmt.Errorf("reading %s: %w: take a part of the log, or raise -max-requests: each takes up to 60 bytes", fileName(name), err)}
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", fileName(name), err)
	}
	if n := reader.BadLines(); n > 0 {
		fmt.Fprintf(stderr, "%s: left out %d of %s, which cannot be read as requests; the first:\n", fileName(name), n, page.Count(reader.Lines(), reader.Unit()))
		for _, bad := range reader.FirstBad() {
			fmt.Fprintf(stderr, "  %s\n", bad)
		}
	}
	if tr.Len() == 0 {
		if reader.Lines() == 0 {
			return nil, fmt.Errorf("%s is empty", fileName(name))
		}
		return nil, fmt.Errorf("%s has no request in a known format: \"tierlimit replay -h\" lists the formats; convert other logs to lines of a time, a space and a key, or to CSV whose first line names the columns time and key", fileName(name))
	}
	f.printNotes(name, tr, stderr)
	return tr, nil
}

// printNotes says what may be wrong with the keys and costs of a log.
func (f *logFlags) printNotes(name string, tr *trace.Trace, stderr io.Writer) {
	if tr.Unnamed > 0 {
		what := strings.TrimSuffix(string(f.key), "+path")
		fmt.Fprintf(stderr, "%s: %d of %s without a %s, counted under one key, \"-\"\n", fileName(name), tr.Unnamed, page.Count(tr.Len(), "request"), what)
		if tr.Unnamed == tr.Len() {
			if f.key == accesslog.KeyHost {
				what = "key"
			}
			fmt.Fprintf(stderr, "  If the log has it under a name that is not known, change that name to %q.\n", what)
		}
	}
	if f.key == accesslog.KeyHost && tr.Keys() == 1 && tr.Len() >= fewRequests && tr.Unnamed == 0 {
		fmt.Fprintf(stderr, "%s: all %s have one key, %q\n  If that is a server or a proxy, name the field or column of the client \"key\", or turn the log into lines of a time and a key.\n", fileName(name), page.Count(tr.Len(), "request"), tr.Event(0).Key)
	}
	if f.cost == accesslog.CostRequests && !tr.OneEach() {
		units := int64(0)
		for i := range tr.Len() {
			units += min(tr.CostOf(i), math.MaxInt64-units)
		}
		fmt.Fprintf(stderr, "%s: %s cost %s, as the log says. If its third column, or \"cost\", is something else, leave it out.\n", fileName(name), page.Count(tr.Len(), "request"), page.Count(int(units), "unit"))
	}
	if f.cost != accesslog.CostRequests && tr.OneEach() {
		fmt.Fprintf(stderr, "%s: each request costs 1, because the log has no response of more than 1 %s\n", fileName(name), strings.TrimSuffix(string(f.cost), "s"))
	}
}

// loadRequests is loadTrace for commands that count each request as one unit.
func loadRequests(ctx context.Context, command string, f logFlags, stdin io.Reader, stderr io.Writer) (*trace.Trace, error) {
	tr, err := loadTrace(ctx, f, stdin, stderr)
	if err == nil && !tr.OneEach() {
		return nil, fmt.Errorf("%s has costs, but %s counts each request as one: leave the costs out, or use replay", fileName(f.file), command)
	}
	return tr, err
}

func fileName(file string) string {
	switch file {
	case "":
		return "the built-in log"
	case "-":
		return "standard input"
	}
	return file
}
