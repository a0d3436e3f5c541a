package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
)

// goal is a bound that this service must keep, and the measured figure.
type goal struct {
	work, figure string
	bound        float64
	atLeast      bool // otherwise: at most
	measured     float64
	floor        float64 // the empty handler's figure; 0: not measured
}

func (g *goal) met() bool {
	if g.atLeast {
		return g.measured >= g.bound
	}
	return g.measured <= g.bound
}

// errMissed is returned if everything was measured and at least one goal was missed.
var errMissed = errors.New("not all goals are met")

// judge writes a table of goals. It returns errMissed if a goal was missed.
func judge(w io.Writer, goals []goal) error {
	fmt.Fprintf(w, "\n%-28s %-46s %8s %9s %9s\n", "load", "goal", "measured", "floor", "")
	var err error
	for _, g := range goals {
		wanted, verdict, floor := "≤", "met", ""
		if g.atLeast {
			wanted = "≥"
		}
		if !g.met() {
			verdict, err = "MISSED", errMissed
		}
		if g.floor > 0 {
			floor = fmt.Sprintf("%.2f", g.floor)
		}
		fmt.Fprintf(w, "%-28s %-46s %8.2f %9s %9s\n", g.work, fmt.Sprintf("%s %s %.3g", g.figure, wanted, g.bound), g.measured, floor, verdict)
	}
	return err
}

// goalsBeside returns the goals of a load that envoyproxy/ratelimit ran too. Figures are medians of the ratios within
// each round. The floor is the empty handler's figure: no Go service on gRPC can be much better.
func goalsBeside(work string, own, original, floor []result) []goal {
	ratio := func(figure string, bound float64, atLeast bool, of func(result) float64) goal {
		return goal{work: work, figure: figure, bound: bound, atLeast: atLeast,
			measured: medianRatio(own, original, of), floor: medianRatio(floor, original, of)}
	}
	errs := 0
	for _, r := range own {
		errs += r.errors
	}
	return []goal{
		ratio("decisions/s by the original's", 3, true, func(r result) float64 { return r.rate }),
		ratio("its CPU a decision by the original's", 1.0/3, false, func(r result) float64 { return r.cpu }),
		ratio("p99 by the original's", 0.5, false, func(r result) float64 { return r.p99 }),
		{work: work, figure: "errors", bound: 0, measured: float64(errs)},
	}
}

// medianRatio returns 0 if there is nothing to compare.
func medianRatio(some, others []result, of func(result) float64) float64 {
	var ratios []float64
	for i := range min(len(some), len(others)) {
		ratios = append(ratios, of(some[i])/of(others[i]))
	}
	if len(ratios) == 0 {
		return 0
	}
	slices.Sort(ratios)
	return ratios[len(ratios)/2]
}

// goalsStopped returns the goals of a load while Redis is stopped.
func goalsStopped(work string, r result) []goal {
	return []goal{
		{work: work, figure: "p99 in ms", bound: ms(deadline), measured: r.p99},
		{work: work, figure: "errors", bound: 0, measured: float64(r.errors)},
	}
}
