package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// report has all results of a run.
type report struct {
	Machine   machine    `json:"machine"`
	Settings  settings   `json:"settings"`
	Cells     []cell     `json:"cells"`
	Overloads []overload `json:"overload"`
	Memories  []memory   `json:"memory"`
	Renewals  []renewal  `json:"renewals"`
	Held      []held     `json:"held"`
}

// tell prints the tables and writes the files that the settings ask for. It returns errNotMet if a goal was missed.
func (r *report) tell(s settings, stdout io.Writer) error {
	err := r.print(stdout)
	if s.JSON != "" {
		err = errors.Join(err, r.writeJSON(s.JSON))
	}
	if s.Markdown != "" {
		err = errors.Join(err, r.writeMarkdown(s.Markdown))
	}
	return errors.Join(err, r.judged())
}

func (r *report) writeJSON(path string) error {
	text, err := json.MarshalIndent(struct {
		*report
		Goals []goal `json:"goals"`
	}{r, r.goals()}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

func (r *report) writeMarkdown(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	fmt.Fprintf(file, "%s\n", r.header())
	for _, t := range r.tables() {
		fmt.Fprintf(file, "\n### %s\n\n", t.title)
		fmt.Fprintf(file, "| %s |\n", strings.Join(t.head, " | "))
		fmt.Fprintf(file, "|%s%s\n", strings.Repeat("---|", t.words), strings.Repeat("---:|", len(t.head)-t.words))
		for _, row := range t.rows {
			fmt.Fprintf(file, "| %s |\n", strings.Join(row, " | "))
		}
	}
	fmt.Fprint(file, "\n", r.footer())
	return file.Close()
}

func (r *report) print(w io.Writer) error {
	fmt.Fprintf(w, "%s\n", r.header())
	for _, t := range r.tables() {
		fmt.Fprintf(w, "\n%s\n", t.title)
		t.align()
		tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		for _, row := range append([][]string{t.head}, t.rows...) {
			fmt.Fprintf(tab, "%s\t\n", strings.Join(row, "\t"))
		}
		if err := tab.Flush(); err != nil {
			return err
		}
	}
	_, err := fmt.Fprint(w, "\n", r.footer())
	return err
}

func (r *report) header() string {
	m := r.Machine
	var versions []string
	for name, version := range m.Versions {
		versions = append(versions, name+" "+version)
	}
	slices.Sort(versions)
	server := "client and server on this machine"
	if r.Settings.RedisURL != "" {
		server = "at the address of -redis"
	}
	return fmt.Sprintf("%s, %d cores, %s; %s; %s, %s; %s.\nMedians of %s of %gs.",
		m.CPU, m.Cores, m.System, m.Go, m.Redis, server, strings.Join(versions, ", "), count(r.Settings.Rounds, "round"), r.Settings.Seconds)
}

// footer explains the columns, and lists why cells are unsound.
func (r *report) footer() string {
	var b strings.Builder
	b.WriteString("× = divided by the reference (the line with 1.00) in the same round, the median:\n" +
		"more is better of decisions/s, less of all else. CPU in µs, calls, allocs and bytes\n" +
		"per decision; the latency of a pipeline is that of the whole. A floor does less than\n" +
		"a limiter of a fleet must. Lines with ! did not measure what they should have:\n")
	for i := range r.Cells {
		if c := &r.Cells[i]; !c.sound() {
			fmt.Fprintf(&b, "! %s, %s, %s: %s\n", c.group, c.size.words(), c.subject, c.flaws())
		}
	}
	return b.String()
}

type table struct {
	title string
	words int // leading columns that contain words; the others contain figures
	head  []string
	rows  [][]string
}

// align pads the columns of words, so that they are left-aligned in a table whose figures are right-aligned.
func (t *table) align() {
	for column := range t.words {
		longest := 0
		rows := append([][]string{t.head}, t.rows...)
		for _, row := range rows {
			longest = max(longest, utf8.RuneCountInString(row[column]))
		}
		for _, row := range rows {
			row[column] += strings.Repeat(" ", longest-utf8.RuneCountInString(row[column]))
		}
	}
}

// tables returns all non-empty tables of the report.
func (r *report) tables() []table {
	tables := r.cellTables()
	for _, t := range []table{r.overloadTable(overloadGroup), r.overloadTable(overloadTen), r.overloadTable(overloadShared), r.loadTable(), r.memoryTable(), r.heldTable(), r.renewalTable(), r.goalTable()} {
		if t.rows != nil {
			tables = append(tables, t)
		}
	}
	return tables
}

// cellTables returns one table for each group and size.
func (r *report) cellTables() []table {
	var tables []table
	for i := range r.Cells {
		c := &r.Cells[i]
		title := c.group + ": " + c.size.words()
		if len(tables) == 0 || tables[len(tables)-1].title != title {
			tables = append(tables, table{title: title, words: 1, head: []string{"", "decisions/s", "×", "denied", "p50", "p99", "×", "p99.9",
				"Redis CPU", "×", "client CPU", "×", "calls", "allocs", "bytes"}})
		}
		t := &tables[len(tables)-1]
		t.rows = append(t.rows, c.row())
	}
	return tables
}

func (r *report) overloadTable(workload string) table {
	t := table{words: 1, head: []string{"", "peak/s", "offered/s", "decided/s", "goodput", "undecided", "degraded", "failed",
		"p99 of all", "decided p99", "degraded p50", "undecided p50", "undecided p99", "undecided max", "breaker opened"}}
	for _, o := range r.Overloads {
		if o.workload != workload {
			continue
		}
		t.title = fmt.Sprintf("%s: offered %v times what Redis can decide, deadline %v: %s", workload, o.times, deadline, count(o.callers, "caller"))
		v := o.values
		t.rows = append(t.rows, []string{o.subject, thousands(v[peakRate]), thousands(v[offeredRate]), thousands(v[decidedRate]), ratio(v[goodput]),
			percent(v[undecidedShare]), percent(v[degradedShare]), percent(v[failedShare]),
			duration(v[allP99]), duration(v[decidedP99]), duration(v[degradedP50]), duration(v[undecidedP50]), duration(v[undecidedP99]), duration(v[undecidedMax]), fmt.Sprint(v[breakerOpened])})
	}
	return t
}

func (r *report) memoryTable() table {
	t := table{title: "Redis memory for one user under 1,000 per hour, by MEMORY USAGE", words: 1,
		head: []string{"", "keys", "bytes, 1 of 1,000", "bytes, 1,000 of 1,000"}}
	for _, m := range r.Memories {
		t.rows = append(t.rows, []string{m.subject, fmt.Sprint(m.keys), thousands(m.one), thousands(m.full)})
	}
	return t
}

func (r *report) heldTable() table {
	t := table{title: "Memory in process with " + thousands(float64(r.Settings.Keys)) + " keys in use, client included", words: 1,
		head: []string{"", "bytes per key"}}
	for _, h := range r.Held {
		t.rows = append(t.rows, []string{h.Subject, short(h.PerKey)})
	}
	return t
}

func (r *report) goalTable() table {
	t := table{title: "Goals", words: 2, head: []string{"work", "figure", "goal", "measured", "", ""}}
	measured := false
	for _, g := range r.goals() {
		if math.IsNaN(g.measured) && r.Settings.Only != "" {
			continue // -only has left it out
		}
		measured = measured || !math.IsNaN(g.measured)
		t.rows = append(t.rows, []string{g.work, g.figure, g.wanted(), short(g.measured), g.verdict(), g.note})
	}
	if !measured {
		t.rows = nil
	}
	return t
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
		thousands(v[perSecond]), ratio(x[perSecond]), percent(v[deniedShare]),
		duration(v[p50]), duration(v[p99]), ratio(x[p99]), duration(v[p999]),
		short(v[redisCPU]), ratio(x[redisCPU]),
		short(v[clientCPU]), ratio(x[clientCPU]),
		short(v[redisCalls]), short(v[allocations]), short(v[allocatedBytes]),
	}
}

// thousands formats a whole number with separators.
func thousands(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	text := fmt.Sprintf("%.0f", v)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// duration formats a duration in µs, or in ms from a thousand on.
func duration(us float64) string {
	if math.IsNaN(us) {
		return "-"
	}
	if us >= 1000 {
		return short(us/1000) + " ms"
	}
	return short(us) + " µs"
}

// percent formats a share.
func percent(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	return fmt.Sprintf("%.3g %%", 100*v)
}

// plain formats a figure with no more digits than it needs.
func plain(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

// short formats about three digits, and shows a figure that is too small to matter as 0.
func short(v float64) string {
	switch {
	case math.IsNaN(v):
		return "-"
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

// readingCost is the most that reading the server's counters adds to its CPU time per decision, in µs, when decisions
// are made in process. Below that, no ratio is shown.
const readingCost = 0.01

// count formats a number of things, with their name in the right form.
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
