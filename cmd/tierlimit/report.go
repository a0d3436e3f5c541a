package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/page"
	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/study"
	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/synthetic"
	"github.com/tierlimit/tierlimit/internal/simulate"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/plan"
	"github.com/tierlimit/tierlimit/plan/traffic"
)

const reportUsage = `Usage: tierlimit report [flags] [FILE]

Replays a log of requests (as replay takes it, "-" for standard input), or a synthetic load,
against every configuration of every algorithm, and writes what each decided and what it
costs as one HTML file that opens without a network. Without FILE and -load it replays a day
of the NASA web server of 1995.

Flags:
`

// reportFlags is the command line of report.
type reportFlags struct {
	limit limit.Limit
	logFlags
	load     *synthetic.Load
	requests int
	need     plan.Need
	wrong    *float64
	find     *float64
	redis    string
	out      string
}

func parseReportFlags(args []string, stdout io.Writer) (reportFlags, error) {
	f := reportFlags{limit: limit.PerMinute(10)}
	set := newFlags("report")
	limitFlag(set, &f.limit, "the limit for each key, as `QUOTA/WINDOW` (default 10/1m)")
	f.logFlags.add(set)
	set.Func("load", "replay a synthetic `load` instead of a log: "+synthetic.Names(), func(s string) error {
		load, err := synthetic.Parse(s)
		f.load = &load
		return err
	})
	set.IntVar(&f.requests, "requests", defaultRequests, "about how many `requests` a synthetic load has")
	needFlags(set, &f.need)
	partFlag(set, "wrong", "need: at most this `part` of the requests decided unlike the exact log, as 0.001 or 0.1%", func(most float64) { f.wrong = &most })
	partFlag(set, "find", "propose limits that would have affected at most this `part` of keys or requests, as 0.01 or 1%", func(most float64) { f.find = &most })
	redisFlag(set, &f.redis, " to check the models on")
	set.StringVar(&f.out, "o", "tierlimit-report.html", "`file` to write, - for standard output")
	if err := parseFlags(set, args, reportUsage, 1, stdout); err != nil {
		return f, err
	}
	f.file = set.Arg(0)
	var ofLog error
	set.Visit(func(given *flag.Flag) {
		if slices.Contains([]string{"key", "max-requests", "max-keys"}, given.Name) && f.load != nil {
			ofLog = usageError{fmt.Errorf("both -load %s and -%s are given: -%s is for a log", f.load.Name, given.Name, given.Name)}
		}
	})
	return f, cmp.Or(ofLog, f.check())
}

const (
	defaultRequests = 100_000
	maxRequests     = 100_000_000
	// maxOver is how many times as many requests as asked for a load may have.
	maxOver = 10
)

func (f *reportFlags) check() error {
	switch {
	case f.load != nil && f.file != "":
		return usageError{fmt.Errorf("both -load %s and the log %s are given: give only one of them", f.load.Name, f.file)}
	case f.load == nil && f.requests != defaultRequests:
		return usageError{fmt.Errorf("-requests %d: is for the synthetic load of -load; a log is read as a whole", f.requests)}
	case f.requests < 1 || f.requests > maxRequests:
		return usageError{fmt.Errorf("-requests %d: must be between 1 and 100,000,000", f.requests)}
	case f.load != nil && f.load.Least(f.limit.Quota()) > maxOver*int64(max(f.requests, defaultRequests)):
		return usageError{fmt.Errorf("-load %s sends the whole limit, which under %v is about %d requests: take a smaller limit, or raise -requests", f.load.Name, f.limit, f.load.Least(f.limit.Quota()))}
	case f.find != nil && !(*f.find >= 0 && *f.find <= 1):
		return usageError{fmt.Errorf("-find %v: must be between 0 and 1, or between 0%% and 100%%", *f.find)}
	case f.wrong != nil && !(*f.wrong >= 0 && *f.wrong <= 1):
		return usageError{fmt.Errorf("-wrong %v: must be between 0 and 1, or between 0%% and 100%%", *f.wrong)}
	case f.limit.IsCalendar():
		return usageError{fmt.Errorf("-limit %v: a calendar limit can be counted in one way only, so there is nothing to compare", f.limit)}
	case f.limit.IsConcurrent():
		return hasWindow("report", f.limit)
	case (f.wrong != nil || f.find != nil) && f.load != nil && f.load.ForEach():
		return usageError{fmt.Errorf("-wrong and -find cannot be given with -load %s, because there each configuration gets requests of its own", f.load.Name)}
	}
	if err := canWrite(f.out); err != nil {
		return usageError{err}
	}
	if isSameFile(f.out, f.file) {
		return usageError{fmt.Errorf("-o %s: that is the log to read; name another file to write", f.out)}
	}
	if f.need.Stated() {
		if err := f.need.Validate(); err != nil {
			return usageError{err}
		}
		// Whether any candidate meets the need is known at once, except for requirements that need the
		// traffic. With those, a need that does not say how late capacity may return allows any lateness.
		need := f.need
		if f.wrong != nil && need.Late == (plan.Tolerance{}) {
			need.Late = plan.AtMost(1)
		}
		_, err := plan.Choose(f.limit, need)
		return err
	}
	return nil
}

// isSameFile reports whether two names refer to the same file.
func isSameFile(a, b string) bool {
	first, err := os.Stat(a)
	if err != nil {
		return false
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second)
}

// canWrite returns an error if a file cannot be written. A report takes a while, so such an error
// should come before the work and not after it.
func canWrite(name string) error {
	is, err := os.Stat(name)
	switch {
	case name == "-", err == nil && !is.Mode().IsRegular() && !is.IsDir(): // a device or a pipe
		return nil
	case name == "":
		return errors.New("-o is empty: give the file to write, or - for standard output")
	}
	if folder, err := os.Stat(filepath.Dir(name)); err != nil || !folder.IsDir() {
		return fmt.Errorf("-o %s: there is no folder %s", name, filepath.Dir(name))
	}
	file, failed := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o666)
	if failed != nil {
		return fmt.Errorf("-o %w", failed)
	}
	_ = file.Close() // nothing was written
	if err == nil {  // the file existed before
		return nil
	}
	made, err := filepath.EvalSymlinks(name) // name may be a link to a file that did not exist
	if err != nil {
		return err
	}
	return os.Remove(made)
}

func runReport(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	f, err := parseReportFlags(args, stdout)
	if err != nil {
		return err
	}
	server, err := findRedis(f.redis, stderr)
	if err != nil {
		return err
	}
	defer server.stop()
	if err := server.reach(ctx); err != nil {
		return err
	}
	client := redis.NewClient(server.options)
	defer client.Close()
	r := reporter{flags: f, client: client, options: server.options, redis: server.shown, stderr: stderr}
	if err := r.load(ctx, stdin); err != nil {
		return err
	}
	p, err := r.page(ctx)
	if err != nil {
		return err
	}
	if f.out == "-" {
		return page.Write(stdout, p)
	}
	if err := writeFile(f.out, p); err != nil {
		return err
	}
	return r.summary(stdout, p)
}

func writeFile(name string, p page.Page) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(page.Write(file, p), file.Close())
}

// reporter makes one report.
type reporter struct {
	flags   reportFlags
	client  *redis.Client
	options *redis.Options
	redis   string // in the form shown to people
	stderr  io.Writer

	source, words string
	candidates    []plan.Candidate
	// traffic returns the requests for a candidate. They are the same for all candidates, except for
	// the adversary's.
	traffic func(plan.Candidate) *simulate.Traffic
}

// load gets the candidates and the traffic. Before the traffic, which may take a while, it tries out the Redis.
func (r *reporter) load(ctx context.Context, stdin io.Reader) (err error) {
	f := r.flags
	if r.candidates, err = plan.Candidates(f.limit); err != nil {
		return err
	}
	if err := r.tryRedis(ctx); err != nil {
		return err
	}
	if f.load != nil {
		r.source, r.words = "the load “"+f.load.Name+"”", "Made up: "+f.load.Words+"."
		r.traffic = func(c plan.Candidate) *simulate.Traffic { return f.load.Traffic(c, f.requests) }
		if !f.load.ForEach() {
			same := r.traffic(r.candidates[0])
			r.traffic = func(plan.Candidate) *simulate.Traffic { return same }
		}
		return nil
	}
	r.source = fileName(f.file)
	if f.file != "" && f.file != "-" {
		r.source = filepath.Base(f.file)
	}
	tr, err := loadRequests(ctx, "report", f.logFlags, stdin, r.stderr)
	if err != nil {
		return err
	}
	if f.file == "" {
		r.source, r.words = "a day of the NASA web server", "1 August 1995, limited by host."
	}
	same := simulate.New(func(yield func(int64, string) bool) {
		for _, e := range tr.All() {
			if !yield(e.At, e.Key) {
				return
			}
		}
	})
	r.traffic = func(plan.Candidate) *simulate.Traffic { return same }
	return nil
}

func (r *reporter) page(ctx context.Context) (page.Page, error) {
	f := r.flags
	first := r.traffic(r.candidates[0])
	if first.Requests() == 0 {
		return page.Page{}, usageError{fmt.Errorf("-requests %d: %s is empty with so few requests, use a larger number", f.requests, r.source)}
	}
	windows := 0
	if f.find != nil {
		windows = len(study.Windows)
	}
	bar := newProgress(r.stderr, first.Requests()*(len(r.candidates)+windows))
	defer bar.finish()
	points, err := study.Points(ctx, r.candidates, r.traffic, bar.describe, bar.add)
	if err != nil {
		return page.Page{}, err
	}
	p := page.Page{Limit: f.limit, Source: r.source, SourceWords: r.words, Points: points}
	if f.find != nil {
		bar.describe("limits")
		p.FindPart = *f.find
		if p.Proposals, err = study.Find(ctx, first, *f.find, func(n int) { bar.add(n * first.Requests()) }); err != nil {
			return page.Page{}, err
		}
	}
	if err := r.choose(&p); err != nil {
		return page.Page{}, err
	}
	t := p.Chosen.Traffic
	p.Requests, p.Keys, p.ExactDenied = t.Requests(), t.Keys(), exactDenied(p.Chosen)
	from, until := t.Span()
	p.Span = from.Format(time.DateTime) + " to " + until.Format(time.DateTime) + " UTC"
	if err := draw(&p); err != nil {
		return page.Page{}, err
	}
	bar.describe("checking on Redis")
	return p, r.onRedis(ctx, &p)
}

// exactDenied returns the number of requests that the exact log denies: those that the point denies,
// corrected by its wrong decisions.
func exactDenied(p study.Point) int {
	return p.Traffic.Requests() - p.Allowed + p.Wrong.Allowed - p.Wrong.Denied
}

// choose selects the configuration to recommend, and the choices for other needs.
func (r *reporter) choose(p *page.Page) (err error) {
	f := r.flags
	need := f.need
	if f.wrong != nil {
		need.Wrong, need.Traffic = plan.AtMost(*f.wrong), requestsOf(r.traffic(r.candidates[0]))
	}
	if need.Stated() {
		p.Plan, err = plan.Choose(f.limit, need)
	} else {
		p.Plan, err = automatic(f.limit)
	}
	if err != nil {
		return err
	}
	chosen, ok := study.Best(p.Points, p.Plan.Candidate)
	if !ok { // GCRA with the automatic burst, if no candidate has exactly that burst
		one, err := study.Points(context.Background(), []plan.Candidate{p.Plan.Candidate}, r.traffic, func(string) {}, nil)
		if err != nil {
			return err
		}
		chosen = one[0]
	}
	p.Chosen = chosen
	all, err := picks(planFlags{limit: f.limit})
	for _, one := range all {
		p.Picks = append(p.Picks, page.Pick{Need: one.Need, Configuration: one.Configuration, BytesFull: one.BytesFull, WorstCase: one.WorstCase})
	}
	return err
}

// requestsOf returns the traffic in the form that plan.Choose takes.
func requestsOf(t *simulate.Traffic) *traffic.Log {
	requests := make([]traffic.Request, 0, t.Requests())
	for key := range t.Keys() {
		for _, request := range t.Of(key) {
			requests = append(requests, traffic.Request{At: time.UnixMicro(t.At(request)), Key: t.Name(key)})
		}
	}
	return traffic.New(requests)
}

// draw makes the report's pictures.
func draw(p *page.Page) (err error) {
	if p.Frontier, err = page.Frontier(p.Points, p.Chosen); err != nil {
		return err
	}
	if p.OverTime, err = page.OverTime(remarkable(p)); err != nil {
		return err
	}
	worst := slices.MaxFunc(p.Points, func(a, b study.Point) int { return int(a.Worst.Units - b.Worst.Units) })
	shown := []study.Point{p.Chosen}
	if worst.Worst.Units > p.Chosen.Worst.Units {
		shown = append(shown, worst)
	}
	for _, point := range shown {
		w, ok, err := study.WorstWindow(point)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		picture, err := page.WorstWindow(w)
		if err != nil {
			return err
		}
		p.Windows = append(p.Windows, page.WindowPicture{Window: w, Picture: picture})
	}
	return nil
}

// remarkable returns the points whose errors are shown over time: the chosen one, and the
// configurations that most people use or might use.
func remarkable(p *page.Page) []study.Point {
	shown := []study.Point{p.Chosen}
	for _, a := range []limit.Algorithm{
		limit.SlidingCounter(limit.DefaultBuckets, limit.Strict), limit.SlidingCounter(1, limit.Estimate), limit.FixedWindow(),
	} {
		if point, ok := study.Best(p.Points, plan.Candidate{Limit: p.Limit, Algorithm: a}); ok && point.Candidate != p.Chosen.Candidate {
			shown = append(shown, point)
		}
	}
	return shown
}
