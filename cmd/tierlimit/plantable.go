package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/page"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/plan"
)

// printPicks writes the choices. They come first because most people want to know them.
func printPicks(w io.Writer, p planned, f planFlags) error {
	fmt.Fprintf(w, "limit %s; %s, with names of %s\n\nWhat is chosen for each need (bytes are calculated):\n\n",
		p.Limit, page.Count(p.Keys, "key"), page.Count(f.nameBytes, "byte"))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	most := "most in any window"
	if f.limit.IsConcurrent() {
		most = "most at any time"
	}
	fmt.Fprintf(t, "need\tchosen\tbytes per full key\t%s\n", most)
	for _, pick := range p.Picks {
		if pick.Error != "" {
			fmt.Fprintf(t, "%s\tnothing\t\t\n", pick.Need)
			continue
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\n", pick.Need, pick.Configuration, pick.BytesFull, pick.WorstCase)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(p.Picks) == 1 {
		if only := p.Picks[0]; only.Error == "" { // otherwise the command ends with this error
			fmt.Fprintf(w, "\n%s: %s\n", only.Configuration, only.Why)
		}
	}
	return nil
}

// printCandidates writes the costs of each configuration.
func printCandidates(w io.Writer, p planned) error {
	measured := p.Redis != "embedded"
	if measured {
		fmt.Fprintf(w, "\nMeasured on %s: bytes by MEMORY USAGE and %s, times are Redis's CPU time for a call with one decision\n\n", p.Redis, "a key's share of the tables")
	} else {
		fmt.Fprint(w, "\nBytes are calculated; -redis URL measures them, and Redis's time, on a real Redis.\n\n")
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	times := [2]string{"", ""}
	if measured {
		times = [2]string{"µs of Redis\t\t", "allowed\tdenied\t"}
	}
	fmt.Fprintln(t, "configuration\tmost in any\tabove\tlate, of\tbytes per key\t\tall keys\t\t"+times[0])
	fmt.Fprintln(t, "\twindow\tthe limit\tthe window\tat rest\tfull\tat rest\tfull\t"+times[1])
	for _, c := range p.Candidates {
		fmt.Fprintf(t, "%s\t%d\t%s %%\t%s %%\t%d\t%d\t%s\t%s\t", c.Configuration, c.WorstCase, digits(100*c.Above), digits(100*c.Late),
			c.BytesAtRest, c.BytesFull, size(c.TotalAtRest), size(c.TotalFull))
		if measured {
			fmt.Fprintf(t, "%.1f\t%s\t", c.AllowedMicros, orDash(c.DeniedMicros))
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// printHeld explains what the table does not show: the bytes of open holds, and a limit without a
// window.
func printHeld(w io.Writer, p planned, f planFlags) {
	if p.Holds > 0 {
		fmt.Fprintf(w, "\nOpen holds come on top: %d of each key take %d bytes, of all keys %s. They are calculated.\n", p.Holds, p.HoldsBytes, size(p.HoldsBytes*p.Keys))
		printDebt(w, p, f)
	}
	if f.limit.IsConcurrent() {
		fmt.Fprint(w, "\nThis is a concurrency limit. It has no window: the most is what can be held at any instant. A key takes\n"+
			"22 bytes for each process that holds units: at rest one process, when full one for each unit, but 1,000 at most.\n")
	}
}

// printDebt explains how far estimates that were too low can exceed the limit.
func printDebt(w io.Writer, p planned, f planFlags) {
	most, ofWhat, log := int64(0), "limit", int64(0)
	if f.limit.Burst() > f.limit.Quota() {
		ofWhat = "burst"
	}
	for _, c := range p.Candidates {
		if most = max(most, c.WithDebt); c.Configuration == limit.SlidingLog().String() {
			log = c.WithDebt
		}
	}
	fmt.Fprintf(w, "\nAs long as no hold is settled with more than was held, the most in any window is that of the table. Units above that\n"+
		"are charged even if they do not fit, and later requests wait for them: a key counts up to %d units, four times the %s.\n", most, ofWhat)
	if log > 0 {
		bytes := plan.Candidate{Limit: f.limit, Algorithm: limit.SlidingLog()}.Bytes(log, f.nameBytes)
		fmt.Fprintf(w, "A log counts up to %d, and then takes %d bytes.\n", log, bytes)
	}
}

// orDash formats a measured time, or returns "-" if there is none.
func orDash(micros float64) string {
	if micros > 0 {
		return fmt.Sprintf("%.1f", micros)
	}
	return "-"
}

// size formats a number of bytes for people.
func size(bytes int64) string {
	units := []string{"B", "kB", "MB", "GB", "TB", "PB", "EB"}
	value, unit := float64(bytes), 0
	for value >= 1000 && unit < len(units)-1 {
		value /= 1000
		unit++
	}
	return digits(value) + " " + units[unit]
}

// digits formats a number with three digits, or a larger number as a whole number: %g would write 1000
// as 1e+03.
func digits(value float64) string {
	if value >= 100 {
		return fmt.Sprintf("%.0f", value)
	}
	return fmt.Sprintf("%.3g", value)
}
