package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"text/tabwriter"
	"time"
)

// report has all results of a run.
type report struct {
	Settings settings  `json:"settings"`
	Outcomes []outcome `json:"outcomes"`
}

func (r report) met() bool {
	for _, o := range r.Outcomes {
		for _, c := range o.Checks {
			if !c.met() {
				return false
			}
		}
	}
	return true
}

func (r report) header() string {
	s := r.Settings
	return fmt.Sprintf("%d per %v, %.1f times that offered, Redis away for %v, deadline %v; seed %d.\n"+
		"Figures are units admitted by the whole fleet in a window, divided by the limit: the most in\n"+
		"windows that end before the cut, within a window of it, later in the outage, within a window of\n"+
		"its end, after that; and the fewest in windows wholly inside the outage.", s.Quota, s.Window, s.Load, s.Outage, s.Deadline, s.Seed)
}

func (r report) print(w io.Writer) error {
	fmt.Fprintln(w, r.header())
	for _, o := range r.Outcomes {
		fmt.Fprintf(w, "\n%s: %s\n", o.Name, o.About)
		tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		for _, table := range o.tables() {
			for _, row := range table {
				fmt.Fprintf(tab, "%-16s\t%s\t\n", row[0], strings.Join(row[1:], "\t"))
			}
			if err := tab.Flush(); err != nil {
				return err
			}
		}
		for _, c := range o.Checks {
			fmt.Fprintf(w, "  %-8s %s\n", verdict(c), c)
		}
		for _, note := range o.Notes {
			fmt.Fprintf(w, "  %s\n", note)
		}
	}
	return nil
}

func verdict(c check) string {
	if c.met() {
		return "met"
	}
	return "NOT MET"
}

func (c check) String() string {
	than := "at most"
	if c.AtLeast {
		than = "at least"
	}
	return fmt.Sprintf("%s: %s, %s %s", c.What, short(c.Value), than, short(c.Goal))
}

// tables returns the factors and the latencies, each with a head row.
func (o outcome) tables() (tables [][][]string) {
	if len(o.Factors) > 0 {
		table := [][]string{{"", "before", "cut", "inside", "recovery", "after", "worst", "least"}}
		for _, x := range o.Factors {
			table = append(table, []string{x.Subject, short(x.Before), short(x.Cut), short(x.Inside), short(x.Recovery), short(x.After), short(x.Worst), short(x.Least)})
		}
		tables = append(tables, table)
	}
	if len(o.Latencies) > 0 {
		table := [][]string{{"calls by", "calls", "p50", "p99", "p99.9", "longest"}}
		for _, l := range o.Latencies {
			table = append(table, []string{l.Tier, fmt.Sprint(l.Calls), round(l.P50), round(l.P99), round(l.P999), round(l.Max)})
		}
		tables = append(tables, table)
	}
	return tables
}

func round(d time.Duration) string { return d.Round(100 * time.Nanosecond).String() }

// short formats a figure with its significant digits, and NaN as "-".
func short(v float64) string {
	switch {
	case math.IsNaN(v):
		return "-"
	case v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	case v < 0.01:
		return fmt.Sprintf("%.2g", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func (r report) markdown(w io.Writer) error {
	fmt.Fprintln(w, r.header())
	for _, o := range r.Outcomes {
		fmt.Fprintf(w, "\n### %s\n\n%s.\n", o.Name, o.About)
		for _, table := range o.tables() {
			fmt.Fprintln(w)
			for i, row := range table {
				fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
				if i == 0 {
					fmt.Fprintf(w, "|---|%s\n", strings.Repeat("---:|", len(row)-1))
				}
			}
		}
		fmt.Fprintln(w)
		for _, c := range o.Checks {
			fmt.Fprintf(w, "- %s: %s\n", verdict(c), c)
		}
		for _, note := range o.Notes {
			fmt.Fprintf(w, "- %s\n", note)
		}
	}
	return nil
}

// MarshalJSON leaves out figures that are NaN.
func (x factors) MarshalJSON() ([]byte, error) {
	values := map[string]any{"subject": x.Subject}
	for name, v := range map[string]float64{"before": x.Before, "cut": x.Cut, "inside": x.Inside, "recovery": x.Recovery, "after": x.After, "worst": x.Worst, "least": x.Least} {
		if !math.IsNaN(v) {
			values[name] = v
		}
	}
	return json.Marshal(values)
}

// writeFiles writes the files that the flags ask for.
func (r report) writeFiles(s settings) error {
	var errs []error
	if s.json != "" {
		text, err := json.MarshalIndent(r, "", "  ")
		if err == nil {
			err = os.WriteFile(s.json, append(text, '\n'), 0o644)
		}
		errs = append(errs, err)
	}
	if s.markdown != "" {
		errs = append(errs, toFile(s.markdown, r.markdown))
	}
	if s.csv != "" {
		errs = append(errs, toFile(s.csv, func(w io.Writer) error { return writeCSV(w, r.Outcomes) }))
	}
	if s.svg != "" && len(r.Outcomes) > 0 && len(r.Outcomes[0].Timeline) > 0 {
		errs = append(errs, drawTimeline(s.svg, s, r.Outcomes[0]))
	}
	return errors.Join(errs...)
}

func toFile(path string, write func(io.Writer) error) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}
