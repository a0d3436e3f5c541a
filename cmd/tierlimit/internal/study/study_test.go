package study

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/accesslog"
	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/nasa"
	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/synthetic"
	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/trace"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/internal/simulate"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/plan"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// readDay reads the built-in log of one day.
func readDay() (*simulate.Traffic, error) {
	log, err := accesslog.NewReader(nasa.Open())
	if err != nil {
		return nil, err
	}
	tr, err := trace.Load(log, accesslog.KeyHost, accesslog.CostRequests, trace.Default)
	if err != nil {
		return nil, err
	}
	return simulate.New(func(yield func(int64, string) bool) {
		for _, e := range tr.All() {
			yield(e.At, e.Key)
		}
	}), nil
}

// tenAMinute has the results of all candidates for the built-in day, at 10 per minute. The simulation
// takes seconds, so it runs once for all tests that use it.
var tenAMinute = sync.OnceValues(func() ([]Point, error) {
	traffic, err := readDay()
	if err != nil {
		return nil, err
	}
	candidates, err := plan.Candidates(limit.PerMinute(10))
	if err != nil {
		return nil, err
	}
	return Points(context.Background(), candidates, func(plan.Candidate) *simulate.Traffic { return traffic }, func(string) {}, nil)
})

func points(t *testing.T) []Point {
	t.Helper()
	all, err := tenAMinute()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// This is the frontier of the NASA day at 10 per minute. Errors fall with k, strict counters never
// exceed the limit, the log is exact, and no candidate exceeds its stated worst case.
func TestTheFrontierOfTheDay(t *testing.T) {
	l, all := limit.PerMinute(10), points(t)
	for _, p := range all {
		if p.Worst.Units > p.WorstCase() {
			t.Errorf("%v: worst window %d, stated %d", p.Candidate, p.Worst.Units, p.WorstCase())
		}
		if p.Algorithm.Buckets() > 0 && p.Algorithm.Rounding() == limit.Strict && p.Worst.Units > 10 {
			t.Errorf("%v: worst window %d", p.Candidate, p.Worst.Units)
		}
		if p.Algorithm == limit.SlidingLog() && (p.Wrong.Total() != 0 || p.Traffic.Requests()-p.Allowed != 1030) {
			t.Errorf("the log: %+v", p.Result)
		}
	}
	for _, rounding := range []limit.Rounding{limit.Estimate, limit.Strict} {
		before := 1.0
		for _, k := range []int{1, 4, 16, 60, limit.MaxBuckets} {
			p, ok := Best(all, plan.Candidate{Limit: l, Algorithm: limit.SlidingCounter(k, rounding)})
			if !ok || p.WrongPart() >= before {
				t.Errorf("%v: %v wrong, with fewer sub-windows %v", p.Candidate, p.WrongPart(), before)
			}
			before = p.WrongPart()
			t.Logf("%v: %.3f %% wrong, worst window %d, %.0f bytes a key", p.Candidate, 100*p.WrongPart(), p.Worst.Units, p.BytesPerKey)
		}
	}
}

// The explanation of a worst window follows from the window's own requests.
func TestWorstWindow(t *testing.T) {
	for name, want := range map[string]struct {
		algorithm limit.Algorithm
		units     int64
		words     string
	}{
		"fixed":    {limit.FixedWindow(), 20, "Units granted before that: 10; and after it, where the count starts again from zero: 10."},
		"estimate": {limit.SlidingCounter(4, limit.Estimate), 19, "10 of the window's units lay in its oldest sub-window"},
		"gcra":     {limit.GCRA(), 19, "burst of 10 units"},
		"strict":   {limit.SlidingCounter(4, limit.Strict), 10, "The fullest held 10 of 10"},
	} {
		t.Run(name, func(t *testing.T) {
			c := plan.Candidate{Limit: limit.PerMinute(10), Algorithm: want.algorithm}
			if name == "gcra" {
				c.Limit = c.Limit.WithBurst(10)
			}
			adversary, err := synthetic.Parse("adversary")
			if err != nil {
				t.Fatal(err)
			}
			all, err := Points(context.Background(), []plan.Candidate{c}, func(c plan.Candidate) *simulate.Traffic { return adversary.Traffic(c, 100) }, func(string) {}, nil)
			if err != nil {
				t.Fatal(err)
			}
			w, ok, err := WorstWindow(all[0])
			if err != nil || !ok || w.Worst.Units != want.units || !strings.Contains(w.Words, want.words) {
				t.Fatalf("%v %v, %d units: %q", ok, err, w.Worst.Units, w.Words)
			}
			most := int64(0)
			for _, m := range w.Moments {
				most = max(most, m.Held)
			}
			if most != want.units {
				t.Errorf("the moments show %d units at most, want %d", most, want.units)
			}
		})
	}
}

// The explanation and the picture of a worst window are right if there are more requests than are kept.
func TestWorstWindowOfManyRequests(t *testing.T) {
	const minute = 60_000_000
	traffic := simulate.New(func(yield func(int64, string) bool) {
		for i := range int64(60_000) { // at 1,000 a second, around the boundary of two fixed windows
			if !yield(100*minute-20_000_000+i*1000, "key") {
				return
			}
		}
	})
	c := plan.Candidate{Limit: limit.PerMinute(15_000), Algorithm: limit.FixedWindow()}
	all, err := Points(t.Context(), []plan.Candidate{c}, func(plan.Candidate) *simulate.Traffic { return traffic }, func(string) {}, nil)
	if err != nil {
		t.Fatal(err)
	}
	w, ok, err := WorstWindow(all[0])
	const words = "Units granted before that: 15000; and after it, where the count starts again from zero: 15000."
	if err != nil || !ok || w.Worst.Units != 30_000 || !strings.Contains(w.Words, words) {
		t.Errorf("%v %v, %d units: %q", ok, err, w.Worst.Units, w.Words)
	}
	most := slices.MaxFunc(w.Moments, func(a, b Moment) int { return cmp.Compare(a.Held, b.Held) })
	if most.Held < 29_990 || len(w.Moments) > 2*maxMoments {
		t.Errorf("%d moments, which show %d units at most, want about 30000", len(w.Moments), most.Held)
	}
}

// The proposed limits affect at most the given part, and limits of one unit less affect more.
func TestFind(t *testing.T) {
	traffic, err := readDay()
	if err != nil {
		t.Fatal(err)
	}
	const part = 0.01
	windows := 0
	proposals, err := Find(context.Background(), traffic, part, func(n int) { windows += n })
	if err != nil || windows != len(Windows) || len(proposals) != windows {
		t.Fatalf("%d proposals, %v", len(proposals), err)
	}
	for i, p := range proposals {
		f := finder{traffic: traffic, window: Windows[i], peaks: peaks(traffic, Windows[i])}
		if most := part * float64(traffic.Keys()); float64(p.ByKeys.Affected) > most || float64(f.effect(p.ByKeys.Limit.Quota()-1).Affected) <= most {
			t.Errorf("%v affects %d keys of %d", p.ByKeys.Limit, p.ByKeys.Affected, traffic.Keys())
		}
		if most := part * float64(traffic.Requests()); float64(p.ByRequests.Denied) > most || float64(f.effect(p.ByRequests.Limit.Quota()-1).Denied) <= most {
			t.Errorf("%v denies %d requests of %d", p.ByRequests.Limit, p.ByRequests.Denied, traffic.Requests())
		}
		denied := 0
		for _, who := range p.ByKeys.Who {
			denied += who.Denied
		}
		if len(p.ByKeys.Who) != min(p.ByKeys.Affected, maxLimited) || denied > p.ByKeys.Denied {
			t.Errorf("%v: %+v", p.ByKeys.Limit, p.ByKeys)
		}
	}
}

func TestFindEverythingAndNothing(t *testing.T) {
	traffic := simulate.New(func(yield func(int64, string) bool) {
		for i := range int64(30) {
			yield(1e15+i, fmt.Sprint("key-", i%3))
		}
	})
	for part, want := range map[float64]int64{0: 10, 1: 1} {
		proposals, err := Find(context.Background(), traffic, part, func(int) {})
		if err != nil {
			t.Fatal(err)
		}
		if p := proposals[0]; p.ByRequests.Limit.Quota() != want {
			t.Errorf("for %v: %v, want a quota of %d", part, p.ByRequests.Limit, want)
		}
	}
}

// The real script agrees with the models. If it did not agree, Check would report it.
func TestCheck(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	for _, p := range points(t) {
		if n, err := Check(context.Background(), client, p); err != nil || n == 0 {
			t.Errorf("%v: %d requests, %v", p.Candidate, n, err)
		}
	}
	left, err := client.Keys(context.Background(), "tierlimit-report:*").Result()
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

// 29 % of 100 keys are 29 keys, although the product of these floating-point numbers is slightly less.
func TestFindOfARoundPart(t *testing.T) {
	traffic := simulate.New(func(yield func(int64, string) bool) {
		for key := range 100 {
			for range key + 1 { // so the peaks are 1 to 100
				yield(1e15, fmt.Sprint("key-", key))
			}
		}
	})
	proposals, err := Find(context.Background(), traffic, 0.29, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	if p := proposals[0].ByKeys; p.Affected != 29 || p.Limit.Quota() != 71 {
		t.Errorf("%v affects %d keys, want 71/1s and 29", p.Limit, p.Affected)
	}
}
