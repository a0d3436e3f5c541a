package livepage

import (
	_ "embed" // for the page
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"time"

	"github.com/tierlimit/tierlimit/internal/inspect"
	"github.com/tierlimit/tierlimit/limit"
)

//go:embed page.html
var source string

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"whole": whole, "rate": rate, "percent": percent, "exactly": exactly, "long": long,
}).Parse(source))

// shown has the values that the page shows.
type shown struct {
	inspect.Snapshot
	Decisions  []decisions
	Over       time.Duration  // the period over which rates are averages
	HoldsBack  bool           // some decisions were held back, as happens in groups of several limits
	Held       []inspect.Rule // the rules that hold units, or have held any
	FindsHot   bool
	Hottest    []hot
	AllowReset bool
	Hashes     bool
	Asked      asked
	Minute     minute
}

// decisions counts the decisions of one rule in one tier.
type decisions struct {
	Rule                              string
	inspect.Count                     // since the limiter started
	AllowedPerSecond, DeniedPerSecond float64
	HeldBackPerSecond                 float64
}

// shown returns the values to show now, with rates since an earlier time.
func (p *Page) shown(since, now inspect.Snapshot, a asked) shown {
	s := shown{
		Snapshot: now, Minute: p.history.until(momentOf(now)), Decisions: compare(since, now), Over: between(since, now),
		AllowReset: p.allowReset, Hashes: p.name("").Hashed, Asked: a,
	}
	s.HoldsBack = slices.ContainsFunc(s.Decisions, func(d decisions) bool { return d.HeldBack > 0 })
	for _, r := range now.Rules {
		if r.Limit.IsConcurrent() || r.Held != (inspect.Held{}) {
			s.Held = append(s.Held, r)
		}
	}
	if p.hottest != nil {
		s.FindsHot, s.Hottest = true, p.hottest.top()
	}
	return s
}

// compare returns the decisions of each rule and tier that has made any, with rates since an earlier
// snapshot.
func compare(since, now inspect.Snapshot) []decisions {
	type of struct {
		rule string
		tier limit.Tier
	}
	before := make(map[of]inspect.Count)
	for _, r := range since.Rules {
		for _, c := range r.Counts {
			before[of{r.Name, c.Tier}] = c
		}
	}
	seconds := between(since, now).Seconds()
	var all []decisions
	for _, r := range now.Rules {
		for _, c := range r.Counts {
			if c.Allowed+c.Denied+c.HeldBack == 0 {
				continue
			}
			d := decisions{Rule: r.Name, Count: c}
			b := before[of{r.Name, c.Tier}]
			if c.Allowed < b.Allowed || c.Denied < b.Denied || c.HeldBack < b.HeldBack {
				b = inspect.Count{} // the rule was gone meanwhile, and is counted anew
			}
			d.AllowedPerSecond = float64(c.Allowed-b.Allowed) / seconds
			d.DeniedPerSecond = float64(c.Denied-b.Denied) / seconds
			d.HeldBackPerSecond = float64(c.HeldBack-b.HeldBack) / seconds
			all = append(all, d)
		}
	}
	return all
}

// between returns the time between two snapshots, for rates. A time of less than a second counts as a
// second.
func between(since, now inspect.Snapshot) time.Duration {
	return max(time.Second, now.At.Sub(since.At))
}

// whole formats a whole number with commas between thousands.
func whole(n any) string { return grouped(fmt.Sprint(n)) }

func grouped(digits string) string {
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// rate formats a number per second.
func rate(perSecond float64) string {
	if perSecond < 99.95 {
		return strconv.FormatFloat(perSecond, 'f', 1, 64)
	}
	return grouped(strconv.FormatFloat(perSecond, 'f', 0, 64))
}

// long reports whether a name is so long that it is shown in several lines, so that it does not push the numbers of
// its row out of view.
func long(name string) bool { return len(name) > 24 }

func percent(part float64) string { return strconv.FormatFloat(100*part, 'f', 0, 64) + " %" }

// exactly formats a duration as exactly as anyone wants to know it.
func exactly(d time.Duration) string {
	if d >= time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Microsecond).String()
}
