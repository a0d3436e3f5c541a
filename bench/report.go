package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// report is everything a run found.
type report struct {
	Machine  machine  `json:"machine"`
	Settings settings `json:"settings"`
	Cells    []cell   `json:"cells"`
}

func (r report) writeJSON(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

func (r report) writeMarkdown(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	fmt.Fprintf(file, "%s\n", r.header())
	for _, t := range r.tables() {
		fmt.Fprintf(file, "\n### %s\n\n", t.title)
		fmt.Fprintf(file, "| %s |\n", strings.Join(t.head, " | "))
		fmt.Fprintf(file, "|---|%s\n", strings.Repeat("---:|", len(t.head)-1))
		for _, row := range t.rows {
			fmt.Fprintf(file, "| %s |\n", strings.Join(row, " | "))
		}
	}
	fmt.Fprint(file, "\n", r.footer())
	return file.Close()
}

func (r report) print(w io.Writer) error {
	fmt.Fprintf(w, "%s\n", r.header())
	for _, t := range r.tables() {
		fmt.Fprintf(w, "\n%s\n", t.title)
		// Right-aligned columns line up digits; only the names are padded by hand.
		longest := 0
		for _, row := range t.rows {
			longest = max(longest, len(row[0]))
		}
		tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		for _, row := range append([][]string{t.head}, t.rows...) {
			fmt.Fprintf(tab, "%-*s\t%s\t\n", longest, row[0], strings.Join(row[1:], "\t"))
		}
		if err := tab.Flush(); err != nil {
			return err
		}
	}
	_, err := fmt.Fprint(w, "\n", r.footer())
	return err
}

func (r report) header() string {
	m := r.Machine
	var versions []string
	for name, version := range m.Versions {
		versions = append(versions, name+" "+version)
	}
	slices.Sort(versions)
	return fmt.Sprintf("%s, %d cores, %s; %s; %s, client and server on this machine; %s.\nMedians of %s of %gs.",
		m.CPU, m.Cores, m.System, m.Go, m.Redis, strings.Join(versions, ", "), count(r.Settings.Rounds, "round"), r.Settings.Seconds)
}

// footer explains the columns, and lists what makes cells unsound.
func (r report) footer() string {
	var b strings.Builder
	b.WriteString("× = divided by the reference, the line with 1.00: more is better of decisions/s,\n" +
		"less is better of all else. CPU in µs, calls, allocs and bytes per decision; the\n" +
		"latency of a pipeline is that of the whole.\n")
	for _, c := range r.Cells {
		if !c.sound() {
			fmt.Fprintf(&b, "! %s, %d callers, %s: %s\n", c.group, c.callers, c.subject, c.flaws())
		}
	}
	return b.String()
}

type table struct {
	title string
	head  []string
	rows  [][]string
}

// tables makes one table of each group's cells with the same number of callers.
func (r report) tables() []table {
	var tables []table
	for _, c := range r.Cells {
		title := c.group + ": " + count(c.callers, "caller")
		if len(tables) == 0 || tables[len(tables)-1].title != title {
			tables = append(tables, table{title: title, head: []string{"", "decisions/s", "×", "p50", "p99", "×", "p99.9",
				"Redis CPU", "×", "client CPU", "×", "calls", "allocs", "bytes"}})
		}
		t := &tables[len(tables)-1]
		t.rows = append(t.rows, c.row())
	}
	return tables
}

func (c *cell) row() []string {
	name := c.subject
	if !c.sound() {
		name = "! " + name
	}
	v, x := c.values, c.ratios
	if v[redisCPU] < readingCost {
		x[redisCPU] = math.NaN()
	}
	return []string{
		name,
		thousands(v[perSecond]), ratio(x[perSecond]),
		duration(v[p50]), duration(v[p99]), ratio(x[p99]), duration(v[p999]),
		short(v[redisCPU]), ratio(x[redisCPU]),
		short(v[clientCPU]), ratio(x[clientCPU]),
		short(v[redisCalls]), short(v[allocations]), short(v[allocatedBytes]),
	}
}

// thousands is a whole number with separators.
func thousands(v float64) string {
	text := fmt.Sprintf("%.0f", v)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// duration writes µs, as ms from a thousand on.
func duration(us float64) string {
	if us >= 1000 {
		return short(us/1000) + " ms"
	}
	return short(us) + " µs"
}

// short writes about three digits, and nothing for what is too small to matter.
func short(v float64) string {
	switch {
	case v < 0.0005:
		return "0"
	case v < 0.1:
		return fmt.Sprintf("%.3f", v)
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// readingCost is the most that reading the server's counters adds to its CPU per
// decision, in µs, where decisions are made in process: no ratio is told below.
const readingCost = 0.01

// count is a number of things, with their name in the right form.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprint(n, " ", thing, "s")
}

func ratio(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "-"
	}
	return fmt.Sprintf("%.2f", v)
}
