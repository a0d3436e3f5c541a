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
	"whole": whole, "rate": rate, "percent": percent, "exactly": exactly,
}).Parse(source))

// shown is what the page shows.
type shown struct {
	inspect.Snapshot
	Decisions  []decisions
	Over       time.Duration  // what rates are averages of
	HoldsBack  bool           // some decisions: as groups of several limits do
	Held       []inspect.Rule // those that hold units, or held any
	FindsHot   bool
	Hottest    []hot
	AllowReset bool
	Hashes     bool
	Asked      asked
	Minute     minute
}

// decisions are those of a rule and a tier.
type decisions struct {
	Rule                              string
	inspect.Count                     // in all
	AllowedPerSecond, DeniedPerSecond float64
	HeldBackPerSecond                 float64
}

// shown is what is to be seen now, with rates since an earlier time.
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

// compare tells how many decisions each tier makes, of those that have made any.
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
			d.AllowedPerSecond = float64(c.Allowed-b.Allowed) / seconds
			d.DeniedPerSecond = float64(c.Denied-b.Denied) / seconds
			d.HeldBackPerSecond = float64(c.HeldBack-b.HeldBack) / seconds
			all = append(all, d)
		}
	}
	return all
}

// between is how far apart two snapshots are, for rates: what is less than a second old
// is taken for a second's.
func between(since, now inspect.Snapshot) time.Duration {
	return max(time.Second, now.At.Sub(since.At))
}

// whole writes a whole number with commas between thousands.
func whole(n any) string { return grouped(fmt.Sprint(n)) }

func grouped(digits string) string {
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// rate writes a number per second.
func rate(perSecond float64) string {
	if perSecond < 99.95 {
		return strconv.FormatFloat(perSecond, 'f', 1, 64)
	}
	return grouped(strconv.FormatFloat(perSecond, 'f', 0, 64))
}

func percent(part float64) string { return strconv.FormatFloat(100*part, 'f', 0, 64) + " %" }

// exactly writes a duration as far as anyone wants to know it.
func exactly(d time.Duration) string {
	if d >= time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Microsecond).String()
}
