package main

import (
	"fmt"
	"io"

	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/page"
	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/replay"
)

// columns are as wide as their headings, so that a row can be printed as soon as it is known.
const columns = "  %8s  %8s  %8s  %8s  %8s  %9s  %8s  %8s\n"

// nameWidth is the width of the column of algorithms.
func (f replayFlags) nameWidth() int {
	width := len("algorithm")
	for _, c := range f.candidates {
		width = max(width, len(c.name))
	}
	return width
}

// printHead writes what is known before the replay.
func printHead(w io.Writer, rep report, f replayFlags) {
	fmt.Fprintf(w, "%s of %s (%s), %s; limit %d per %s; %s\n",
		page.Count(rep.Requests, "request"), page.Count(rep.Keys, "key"), f.key, page.Count(rep.BadLines, "bad line"),
		rep.Limit, f.limit.WindowString(), page.Count(rep.Instances, "instance"))
	if rep.Redis == "embedded" {
		fmt.Fprintf(w, "Redis: embedded (in this process; -redis URL or $REDIS_URL for a real one)\n\n")
	} else {
		fmt.Fprintf(w, "Redis: %s\n\n", rep.Redis)
	}
	fmt.Fprintf(w, "%*s"+columns, f.nameWidth(), "algorithm", "allowed", "denied", "wrongly", "wrongly", "worst", "calls per", "decided", "bytes")
	fmt.Fprintf(w, "%*s"+columns, f.nameWidth(), "", "", "", "allowed", "denied", "window", "decision", "locally", "per key")
}

// printRow writes one result.
func printRow(w io.Writer, requests int, f replayFlags, r replay.Result) {
	bytes := "-"
	if r.BytesPerKey != nil {
		bytes = fmt.Sprintf("%.0f", *r.BytesPerKey)
	}
	part := func(n int) float64 { return float64(n) / float64(requests) }
	fmt.Fprintf(w, "%*s"+columns, f.nameWidth(), r.Configuration, fmt.Sprint(r.Allowed), fmt.Sprint(r.Denied),
		fmt.Sprint(r.WronglyAllowed), fmt.Sprint(r.WronglyDenied), fmt.Sprint(r.WorstWindow),
		fmt.Sprintf("%.3f", part(r.RedisCalls)), fmt.Sprintf("%.1f %%", 100*part(r.DecidedLocally)), bytes)
}

// printFoot explains the table.
func printFoot(w io.Writer, rep report) error {
	for _, r := range rep.Results {
		if r.NeverFit > 0 {
			fmt.Fprintf(w, "\n%s: always denied, because the cost is above the limit: %s.", r.Configuration, page.Count(r.NeverFit, "request"))
		}
	}
	_, err := fmt.Fprint(w, "\nWrongly: unlike the textbook's exact log. Worst window: the most units of one\nkey allowed in any window of the limit's length.\n")
	return err
}
