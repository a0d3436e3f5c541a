package main

import (
	"encoding/csv"
	"io"
	"slices"
	"strconv"

	"github.com/tierlimit/tierlimit/bench/outage/factor"
)

// interval is what was admitted of key 0 in a tenth of a window.
type interval struct {
	Seconds float64 `json:"seconds"` // of its beginning, relative to the cut
	Subject string  `json:"subject"`
	Redis   float64 `json:"redis"`    // units a second that Redis admitted
	Without float64 `json:"fallback"` // units a second that were admitted without Redis
	Window  float64 `json:"window"`   // units in the window that ends with the interval, divided by the limit
}

func (f *fleet) timeline(calls []call) (all []interval) {
	length, window := f.Window.Microseconds()/10, f.Window.Microseconds()
	perSecond := 1e6 / float64(length)
	for by := range subjects {
		if by != ours && !f.scenario.baselines {
			continue
		}
		g := grants(calls, by, 0)
		rest := slices.DeleteFunc(slices.Clone(calls), func(c call) bool { return c.by != by || c.key != 0 || !c.allowed || c.at < f.began })
		for start := f.began; start+length <= f.end; start += length {
			i := interval{Seconds: float64(start-f.cut) / 1e6, Subject: by.String()}
			for ; len(rest) > 0 && rest[0].at < start+length; rest = rest[1:] {
				if rest[0].tier.Degraded() {
					i.Without += perSecond
				} else {
					i.Redis += perSecond
				}
			}
			end := start + length
			if units, ok := factor.Least(g, window, end-window, end); ok {
				i.Window = float64(units) / float64(f.Quota)
			}
			all = append(all, i)
		}
	}
	return all
}

func writeCSV(w io.Writer, outcomes []outcome) error {
	out := csv.NewWriter(w)
	_ = out.Write([]string{"scenario", "subject", "seconds", "admitted_by_redis_per_second", "admitted_without_per_second", "window_per_limit"}) // see Error
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
	for _, o := range outcomes {
		for _, i := range o.Timeline {
			_ = out.Write([]string{o.Name, i.Subject, number(i.Seconds), number(i.Redis), number(i.Without), number(i.Window)})
		}
	}
	out.Flush()
	return out.Error()
}
