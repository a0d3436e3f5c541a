// Command simulate plays outages in virtual time, to find out which rules hold the
// limit and which do not. It decides nothing in the library: what it found is in
// docs/outages.md.
//
//	go -C bench/outage run ./simulate
package main

import (
	"flag"
	"fmt"
	"math"
	"os"
	"text/tabwriter"

	"github.com/tierlimit/tierlimit/bench/outage/factor"
)

const second = int64(1e6)

var (
	skewed  = []float64{0.70, 0.15, 0.10, 0.05}
	uniform = []float64{0.25, 0.25, 0.25, 0.25}
)

func zipf(n int) []float64 {
	weights, sum := make([]float64, n), 0.0
	for i := range weights {
		weights[i] = 1 / float64(i+1)
		sum += weights[i]
	}
	for i := range weights {
		weights[i] /= sum
	}
	return weights
}

// recommended is the outage of the design, with the rules that came out best.
func recommended() plan {
	p := plan{
		algorithm: "log", quota: 1000, window: 10 * second, burst: 100, weights: skewed, load: 3, fleet: 4,
		buckets: 16, share: "additive-fading", leastFree: true, freshness: 2 * second, charge: "middle", chargeTakes: second / 2, bothMustAgree: true,
		settle: "reconciled", restartPart: 1, restartDebt: true, heal: "both", beat: second,
	}
	return p
}

// finish sets what follows from the window.
func (p plan) finish() plan {
	if p.length == 0 {
		p.down, p.up, p.length = 3*p.window+p.window/3, 6*p.window+p.window/3, 10*p.window
	}
	p.fleet = len(p.weights)
	return p
}

// result is factors of the limit, the worst of many histories.
type result struct{ before, cut, inside, recovery, after, least, leastAfter, sum float64 }

func (p plan) measure(seeds int) result {
	none := math.NaN()
	r := result{none, none, none, none, none, none, none, none}
	n := float64(p.quota)
	for seed := range seeds {
		q := p
		shift := int64(seed) * q.window / int64(seeds) // cuts at every phase of the pattern
		if q.flushAt > 0 {
			q.flushAt += shift
		} else if q.grow == 0 {
			q.down, q.up, q.length = q.down+shift, q.up+shift, q.length+shift
		}
		f := q.run(uint64(seed))
		down, up := q.down, q.up
		if up == 0 {
			down, up = q.length, q.length
		}
		most := func(found float64, from, to int64) float64 {
			if from >= to {
				return found
			}
			units, _ := factor.Most(f.grants, q.window, from, to)
			return fmax(found, float64(units)/n)
		}
		r.before = most(r.before, 0, down)
		r.cut = most(r.cut, down, min(up, down+q.window))
		r.inside = most(r.inside, down+q.window, up)
		r.recovery = most(r.recovery, up, min(up+q.window, q.length))
		r.after = most(r.after, up+q.window, q.length)
		if units, ok := factor.Least(f.grants, q.window, down, up); ok {
			r.least = fmin(r.least, float64(units)/n)
		}
		if units, ok := factor.Least(f.grants, q.window, up, q.length); ok {
			r.leastAfter = fmin(r.leastAfter, float64(units)/n)
		}
		if q.up > 0 {
			r.sum = fmax(r.sum, float64(f.quotas)/n)
		}
	}
	return r
}

// fmin and fmax are of what was found before, which may be nothing yet.
func fmin(before, v float64) float64 {
	if math.IsNaN(before) {
		return v
	}
	return min(before, v)
}

func fmax(before, v float64) float64 {
	if math.IsNaN(before) {
		return v
	}
	return max(before, v)
}

func figure(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	return fmt.Sprintf("%.2f", v)
}

func main() {
	seeds := flag.Int("seeds", 20, "histories per line, with the cut at as many phases of the window")
	only := flag.String("group", "", "only this group of lines")
	flag.Parse()
	for _, g := range groups() {
		if *only != "" && g.name != *only {
			continue
		}
		fmt.Printf("\n%s\n", g.name)
		tab := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(tab, "before\tcut\tinside\trecovery\tafter\tleast inside\tleast after\tquotas\t ")
		for _, l := range g.lines {
			r := l.plan.finish().measure(*seeds)
			for _, v := range []float64{r.before, r.cut, r.inside, r.recovery, r.after, r.least, r.leastAfter, r.sum} {
				fmt.Fprintf(tab, "%s\t", figure(v))
			}
			fmt.Fprintf(tab, "  %s\n", l.name)
		}
		_ = tab.Flush()
	}
}
