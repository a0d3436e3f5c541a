package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// printTable writes the report for people.
func printTable(w io.Writer, rep report, f replayFlags) error {
	fmt.Fprintf(w, "%d requests of %d keys (%s), %d bad lines; limit %d per %s; %d instances\n",
		rep.Requests, rep.Keys, f.key, rep.BadLines, rep.Limit, f.limit.WindowString(), rep.Instances)
	if rep.Redis == "embedded" {
		fmt.Fprintf(w, "Redis: embedded (miniredis, in this process; -redis URL or $REDIS_URL for a real one)\n\n")
	} else {
		fmt.Fprintf(w, "Redis: %s\n\n", rep.Redis)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "algorithm\tallowed\tdenied\twrongly\twrongly\tworst\tcalls per\tdecided\tbytes\t")
	fmt.Fprintln(t, "\t\t\tallowed\tdenied\twindow\tdecision\tlocally\tper key\t")
	for _, r := range rep.Results {
		bytes := "-"
		if r.BytesPerKey != nil {
			bytes = fmt.Sprintf("%.0f", *r.BytesPerKey)
		}
		requests := float64(rep.Requests)
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%.3f\t%.1f %%\t%s\t\n",
			r.Configuration, r.Allowed, r.Denied, r.WronglyAllowed, r.WronglyDenied, r.WorstWindow,
			float64(r.RedisCalls)/requests, 100*float64(r.DecidedLocally)/requests, bytes)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprint(w, "\nWrongly: unlike the textbook's exact log. Worst window: the most requests of one\nkey allowed in any window of the limit's length.\n")
	return nil
}
