package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// printPlan writes the table for people.
func printPlan(w io.Writer, p planned, f planFlags) error {
	fmt.Fprintf(w, "limit %s; %d keys, with names of %d bytes\n", p.Limit, p.Keys, f.nameBytes)
	if p.Redis == "embedded" {
		fmt.Fprint(w, "Redis: embedded (miniredis, in this process): bytes are reckoned; times are of this\nprocess, not of a Redis, and good for ratios at best. -redis URL measures on a real one.\n\n")
	} else {
		fmt.Fprintf(w, "Redis: %s: bytes by MEMORY USAGE and %s, times are its CPU per call of one decision\n\n", p.Redis, "a key's share of the tables")
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "configuration\tmost in any\tabove\tlate, of\tbytes per key\t\tall keys\t\tµs of Redis\t\t")
	fmt.Fprintln(t, "\twindow\tthe limit\tthe window\tat rest\tfull\tat rest\tfull\tallowed\tdenied\t")
	for _, c := range p.Candidates {
		denied := "-"
		if c.DeniedMicros > 0 {
			denied = fmt.Sprintf("%.1f", c.DeniedMicros)
		}
		fmt.Fprintf(t, "%s\t%d\t%.3g %%\t%.3g %%\t%d\t%d\t%s\t%s\t%.1f\t%s\t\n",
			c.Configuration, c.WorstCase, 100*c.Above, 100*c.Late, c.BytesAtRest, c.BytesFull,
			size(c.TotalAtRest), size(c.TotalFull), c.AllowedMicros, denied)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprint(w, "\nWhat is chosen for what is needed (bytes are reckoned):\n\n")
	t = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, pick := range p.Picks {
		if pick.Error != "" {
			fmt.Fprintf(t, "%s\tnothing\t\t\n", pick.Need)
			continue
		}
		fmt.Fprintf(t, "%s\t%s\t%d bytes\tup to %d\n", pick.Need, pick.Configuration, pick.BytesFull, pick.WorstCase)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(p.Picks) == 1 {
		fmt.Fprintf(w, "\n%s%s\n", p.Picks[0].Why, p.Picks[0].Error)
	}
	return nil
}

// size is a number of bytes as people read it.
func size(bytes int64) string {
	units := []string{"B", "kB", "MB", "GB", "TB", "PB", "EB"}
	value, unit := float64(bytes), 0
	for value >= 1000 && unit < len(units)-1 {
		value /= 1000
		unit++
	}
	return fmt.Sprintf("%.3g %s", value, units[unit])
}
