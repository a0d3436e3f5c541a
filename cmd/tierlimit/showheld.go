package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/page"
	"github.com/tierlimit/tierlimit/internal/state"
)

// printHolders writes which processes hold units of a concurrency limit.
func (k *keyShown) printHolders(w io.Writer) error {
	if len(k.State.Holders) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "  units\theld by process\tfree, if not renewed")
	shown := k.State.Holders[:min(len(k.State.Holders), maxLines)]
	for _, h := range shown {
		fmt.Fprintf(t, "  %d\t%016x\tin %s\n", h.Units, h.ID, duration(h.Until-k.State.Now))
	}
	rest := int64(0)
	for _, h := range k.State.Holders[len(shown):] {
		rest += h.Units
	}
	if rest > 0 {
		fmt.Fprintf(t, "  %d\t%s\t\n", rest, page.Count(len(k.State.Holders)-len(shown), "other"))
	}
	return t.Flush()
}

// printHolds writes the open holds, and those that have ended but may still be settled.
func (k *keyShown) printHolds(w io.Writer) error {
	if len(k.holds) == 0 {
		return nil
	}
	now := k.Clock
	if k.State != nil {
		now = k.State.Now
	}
	holds := slices.Clone(k.holds)
	slices.SortFunc(holds, func(a, b state.Hold) int { return cmp.Or(cmp.Compare(a.Ends, b.Ends), cmp.Compare(a.ID, b.ID)) })
	// The holds that end last are open; the others have ended and may only still be settled.
	left := holds[:max(0, len(holds)-maxLines)]
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "  held\tby hold\tcharged\tends\tif nobody settles it")
	if len(left) > 0 {
		units := int64(0)
		for _, h := range left {
			units += h.Units
		}
		fmt.Fprintf(t, "  %d\t%s\t\tearlier\t\n", units, page.Count(len(left), "other"))
	}
	for _, h := range holds[len(left):] {
		ends, then := "in "+duration(h.Ends-now), "counts until it leaves"
		if h.GivesBack {
			then = "is given back"
		}
		switch {
		case h.Ends <= now && h.Units == 0:
			ends, then = duration(now-h.Ends)+" ago", "was given back"
		case h.Ends <= now:
			ends = duration(now-h.Ends) + " ago"
			if h.GivesBack {
				then = "is given back by the next request"
			}
		}
		fmt.Fprintf(t, "  %d\t%016x\t%s ago\t%s\t%s\n", h.Units, h.ID, duration(max(0, now-h.Charged)), ends, then)
	}
	return t.Flush()
}
