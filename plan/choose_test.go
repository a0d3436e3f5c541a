package plan_test

import (
	"cmp"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/internal/model"
	"github.com/tierlimit/tierlimit/internal/simulate"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/plan"
	"github.com/tierlimit/tierlimit/plan/traffic"
)

// epoch is the start of virtual time: an odd moment of 2026, in µs.
const epoch = 1_790_123_456_789_012

// seen is the result of attacking a candidate in simulation.
type seen struct {
	above float64       // as a part of the limit
	late  time.Duration // until all units are granted that the exact log would grant
}

func see(t rapid.TB, c plan.Candidate) seen {
	t.Helper()
	window := c.Limit.Window().Microseconds()
	m := start(t, c)
	var stamps, costs []int64
	for _, at := range simulate.Adversary(c.Limit, c.Algorithm, epoch) {
		if m.Decide(at, 1).Allowed {
			stamps, costs = append(stamps, at), append(costs, 1)
		}
	}
	worst := model.MaxInWindow(stamps, costs, window)

	// The whole limit is requested at once for a fresh key, and again a window later, when the log has
	// let go of all units. The first request is at the beginning of a sub-window, which keeps it
	// longest.
	m = start(t, c)
	begin := epoch - epoch%window + window
	late := untilGranted(t, m, begin, c.Limit.Quota())
	m = start(t, c)
	m.TakeUpTo(begin, c.Limit.Quota())
	late = max(late, untilGranted(t, m, begin+window, c.Limit.Quota()))
	return seen{
		above: float64(worst-c.Limit.Quota()) / float64(c.Limit.Quota()),
		late:  time.Duration(late) * time.Microsecond,
	}
}

func start(t rapid.TB, c plan.Candidate) model.Model {
	t.Helper()
	m, err := model.New(c.Limit, c.Algorithm)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// untilGranted returns the time until a key has granted the given number of units, if it is asked
// whenever it may grant some.
func untilGranted(t rapid.TB, m model.Model, from, units int64) int64 {
	t.Helper()
	at := from
	for {
		out := m.TakeUpTo(at, units)
		if units -= out.Granted; units == 0 {
			return at - from
		}
		if out.Granted == 0 {
			if out.NextAfter <= 0 {
				t.Fatalf("%d units are missing, and no wait would help: %+v", units, out)
			}
			at += out.NextAfter
		}
	}
}

// rounding is the most that waits of whole microseconds add: one microsecond for each unit.
func rounding(c plan.Candidate) time.Duration {
	return time.Duration(c.Limit.Quota()) * time.Microsecond
}

// stated is a drawn need, with its numbers.
type stated struct {
	plan.Need
	above, late float64 // +Inf for any
	bytes       int64
}

func drawNeed(t *rapid.T) stated {
	unstated := math.Inf(1)
	s := stated{
		above: rapid.SampledFrom([]float64{unstated, 0, 0.01, 0.1, 0.3, 0.9, 1, 2}).Draw(t, "above"),
		late:  rapid.SampledFrom([]float64{unstated, 0, 0.004, 0.01, 0.05, 0.25, 0.5, 0.9, 1}).Draw(t, "late"),
		bytes: rapid.SampledFrom([]int64{0, 0, 160, 168, 184, 200, 216, 300, 500, 1000}).Draw(t, "bytes"),
	}
	s.Bytes = s.bytes
	if s.above != unstated {
		s.Above = plan.AtMost(s.above)
	}
	if s.late != unstated {
		s.Late = plan.AtMost(s.late)
	} else {
		s.late = plan.DefaultLate
	}
	return s
}

// meets reports whether a candidate, as seen in simulation, meets the need.
func (s stated) meets(t rapid.TB, c plan.Candidate) bool {
	v := see(t, c)
	return v.above <= s.above &&
		v.late <= time.Duration(s.late*float64(c.Limit.Window()))+rounding(c) &&
		(s.bytes == 0 || c.Full(0) <= s.bytes)
}

// For random needs, the chosen candidate meets the need in simulation against an adversary, and no
// cheaper candidate does. For a need that states only a budget, no candidate within it is more exact.
func TestChooseTakesTheCheapestThatMeetsTheNeed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// The windows are much longer than a µs per unit, so that rounding does not matter.
		l := limit.Per(rapid.Int64Range(1, 120).Draw(t, "quota"), rapid.SampledFrom([]time.Duration{time.Second, time.Minute, 24 * time.Hour}).Draw(t, "window"))
		if burst := rapid.Int64Range(0, 150).Draw(t, "burst"); burst%3 == 0 {
			l = l.WithBurst(burst)
		}
		need := drawNeed(t)
		if !need.Stated() {
			t.Skip("nothing stated")
		}
		candidates, err := plan.Candidates(l)
		if err != nil {
			t.Fatal(err)
		}
		p, err := plan.Choose(l, need.Need)
		if errors.Is(err, plan.ErrUnmet) {
			for _, c := range candidates {
				if need.meets(t, c) {
					t.Fatalf("%v with %v: %v, but %v meets it: %+v", l, need.Need, err, c, see(t, c))
				}
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if !need.meets(t, p.Candidate) {
			t.Fatalf("%v with %v: %v does not meet it: %+v", l, need.Need, p, see(t, p.Candidate))
		}
		onlyMemory := math.IsInf(need.above, 1) && need.Late == plan.Tolerance{}
		for _, c := range candidates {
			better := cmp.Or(cmp.Compare(c.Full(0), p.BytesFull), cmp.Compare(c.CPU(), p.CPU())) < 0
			if onlyMemory {
				better = see(t, c).above < see(t, p.Candidate).above
			}
			if better && need.meets(t, c) {
				t.Fatalf("%v with %v: chosen is %v, but %v meets it, too: %+v", l, need.Need, p, c, see(t, c))
			}
		}
	})
}

// An adversary reaches exactly the bounds that are stated of a candidate.
func TestStatedBoundsAreReached(t *testing.T) {
	for _, l := range []limit.Limit{limit.PerMinute(10), limit.PerSecond(37), limit.PerMinute(100).WithBurst(150)} {
		candidates, err := plan.Candidates(l)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range candidates {
			v := see(t, c)
			if v.above != c.Above() {
				t.Errorf("%v %v: %v above the limit, stated is %v", l, c, v.above, c.Above())
			}
			stated := time.Duration(c.Late() * float64(l.Window()))
			if v.late > stated+rounding(c) || v.late < stated-rounding(c) {
				t.Errorf("%v %v: %v late, stated is %v", l, c, v.late, stated)
			}
		}
	}
}

// Late holds on random histories. The units that the exact log, with the same charges, would grant at
// some moment are granted at most so much later. The moments are those at which units leave the log.
func TestLateHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := limit.Per(rapid.Int64Range(1, 40).Draw(t, "quota"), rapid.SampledFrom([]time.Duration{time.Second, 997 * time.Millisecond}).Draw(t, "window"))
		candidates, err := plan.Candidates(l)
		if err != nil {
			t.Fatal(err)
		}
		c := rapid.SampledFrom(candidates).Draw(t, "candidate")
		window := l.Window().Microseconds()
		m := start(t, c)
		now := int64(epoch - epoch%window)
		var stamps, costs []int64
		for range rapid.IntRange(1, 30).Draw(t, "requests") {
			now += rapid.Int64Range(0, window/3).Draw(t, "gap")
			if out := m.TakeUpTo(now, rapid.Int64Range(1, l.Quota()).Draw(t, "cost")); out.Granted > 0 {
				stamps, costs = append(stamps, now), append(costs, out.Granted)
			}
		}
		for _, left := range stamps {
			at := max(now, left+window)
			free := l.Quota()
			for i, stamp := range stamps {
				if stamp > at-window {
					free -= costs[i]
				}
			}
			if free <= 0 {
				continue
			}
			late := time.Duration(untilGranted(t, m.Clone(), at, free)) * time.Microsecond
			if most := time.Duration(c.Late()*float64(l.Window())) + rounding(c); late > most {
				t.Fatalf("%v %v: %d units that the log would grant are granted %v later, stated is %v", l, c, free, late, most)
			}
		}
	})
}

// Parts are written as whole numbers or with three digits, never with an exponent.
func TestPartsAreToldAsPercentages(t *testing.T) {
	for part, want := range map[float64]string{0.0004: "0.04 %", 0.125: "12.5 %", 0.9996: "100 %", 1.5: "150 %", 9.99: "999 %", 9.996: "1000 %", 25: "2500 %"} {
		p, err := plan.Choose(limit.PerMinute(10), plan.Need{Above: plan.AtMost(part)})
		if err != nil || !strings.Contains(p.Why, "at most "+want+" above the limit") {
			t.Errorf("%v: %v, %v, want %s", part, p, err, want)
		}
	}
}

// A plan says in words how much of Redis's time its algorithm takes, and how much may pass.
func TestPlansSayWhatTheyCost(t *testing.T) {
	for c, want := range map[plan.Candidate]string{
		{Limit: limit.PerMinute(1), Algorithm: limit.SlidingLog()}:                        "At most 1 unit in any window, no capacity returns late; CPU heavy",
		{Limit: limit.PerMinute(10), Algorithm: limit.SlidingCounter(32, limit.Strict)}:   "At most 10 units in any window, capacity returns up to 3.12 % of the window late; CPU medium",
		{Limit: limit.PerMinute(10), Algorithm: limit.SlidingCounter(48, limit.Estimate)}: "At most 19 units in any window, capacity returns up to 2.08 % of the window late; CPU heavy",
		{Limit: limit.PerMinute(10), Algorithm: limit.GCRA()}:                             "At most 19 units in any window, no capacity returns late; CPU light",
		{Limit: limit.PerMinute(10), Algorithm: limit.FixedWindow()}:                      "At most 20 units in any window, no capacity returns late; CPU light",
		{Limit: limit.Concurrent(5), Algorithm: limit.Concurrency()}:                      "At most 5 units at any time; CPU light",
	} {
		p := plan.Describe(c, 0, "So it is.")
		passes, cpu, _ := strings.Cut(want, "; CPU ")
		if text := p.String(); !strings.Contains(text, "So it is. "+passes+"; ") || !strings.HasSuffix(text, "Redis CPU "+cpu+".") {
			t.Errorf("%s\nwant %s", text, want)
		}
	}
}

// A plan names, of each algorithm and rounding, the nearest candidate that would have been better, and says in what
// respect it does not meet the need.
func TestPlansSayWhyNotAnother(t *testing.T) {
	for need, want := range map[plan.Need]string{
		{Above: plan.AtMost(0)}: "the cheapest with never above the limit, at most 6.25 % of the window late; " +
			"not sliding-counter:k=1,estimate which can go 98.3 % above, nor sliding-counter:k=1,strict which is up to 100 % late, " +
			"nor gcra:burst=1 which is up to 98.3 % late, nor fixed-window which can go 100 % above.",
		{Bytes: 300}: "the most exact with at most 6.25 % of the window late, at most 300 bytes a key; " +
			"not sliding-counter:k=128,strict with 328 bytes, nor sliding-log with 520 bytes.",
		{Above: plan.AtMost(1)}: "the cheapest with at most 100 % above the limit, at most 6.25 % of the window late.",
	} {
		if p, err := plan.Choose(limit.PerMinute(60), need); err != nil || p.Why != want {
			t.Errorf("%v: %v\n%s\nwant\n%s", need, err, p.Why, want)
		}
	}
}

// A budget that a candidate takes up completely is met.
func TestABudgetMayBeTakenUpCompletely(t *testing.T) {
	c := plan.Candidate{Limit: limit.PerMinute(60), Algorithm: limit.SlidingLog()}
	for spare, want := range map[int64]bool{0: true, -1: false} {
		if met, err := (plan.Need{Bytes: c.Full(0) + spare}).Met(c); err != nil || met != want {
			t.Errorf("%d bytes to spare: met %v, %v", spare, met, err)
		}
	}
}

// There are only candidates that can enforce the limit, and no two that are alike.
func TestCandidatesOfALimit(t *testing.T) {
	for l, want := range map[limit.Limit]struct {
		n     int
		first limit.Algorithm
	}{
		limit.Concurrent(3):              {1, limit.Concurrency()},
		limit.PerDay(100_000):            {37, limit.SlidingLog()},
		limit.PerDay(100_001):            {36, limit.SlidingCounter(limit.MaxBuckets, limit.Strict)},
		limit.PerMinute(10).WithBurst(3): {31, limit.SlidingLog()},
		limit.PerMinute(3):               {33, limit.SlidingLog()}, // three bursts
	} {
		all, err := plan.Candidates(l)
		if err != nil || len(all) != want.n || all[0].Algorithm != want.first {
			t.Errorf("%v: %d candidates %v, %v; want %d, %v first", l, len(all), all, err, want.n, want.first)
		}
		seen := make(map[plan.Candidate]bool)
		for _, c := range all {
			if c.Algorithm.Validate() != nil || seen[c] {
				t.Errorf("%v: %v is not valid, or there twice", l, c)
			}
			seen[c] = true
		}
	}
}

func TestWhatCannotBeNeeded(t *testing.T) {
	recorded := traffic.New([]traffic.Request{{At: time.Unix(1, 0), Key: "k"}})
	for name, tc := range map[string]struct {
		need  plan.Need
		words string
	}{
		"nothing":               {plan.Need{}, "states nothing"},
		"only a name's length":  {plan.Need{NameBytes: 30}, "states nothing"},
		"negative":              {plan.Need{Above: plan.AtMost(-0.1)}, "Above is at most -0.1"},
		"not a number":          {plan.Need{Late: plan.AtMost(math.NaN())}, "Late is at most NaN"},
		"endless":               {plan.Need{Wrong: plan.AtMost(math.Inf(1)), Traffic: recorded}, "Wrong is at most +Inf"},
		"wrong without traffic": {plan.Need{Wrong: plan.AtMost(0.1)}, "no Traffic"},
		"wrong on no traffic":   {plan.Need{Wrong: plan.AtMost(0.1), Traffic: traffic.New(nil)}, "no Traffic"},
		"wrong on a nil log":    {plan.Need{Wrong: plan.AtMost(0.1), Traffic: (*traffic.Log)(nil)}, "no Traffic"},
		"wrong on a zero log":   {plan.Need{Wrong: plan.AtMost(0.1), Traffic: &traffic.Log{}}, "no Traffic"},
		"traffic without wrong": {plan.Need{Above: plan.AtMost(0), Traffic: recorded}, "Wrong does not say"},
		"negative bytes":        {plan.Need{Bytes: -1}, "Bytes is -1"},
		"negative millions":     {plan.Need{BytesPerMillion: -1}, "BytesPerMillion is -1"},
		"negative name":         {plan.Need{Bytes: 1, NameBytes: -1}, "NameBytes is -1"},
	} {
		_, err := plan.Choose(limit.PerMinute(10), tc.need)
		if !errors.Is(err, plan.ErrInvalidNeed) || !strings.Contains(err.Error(), tc.words) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, l := range []limit.Limit{limit.Concurrent(10), limit.PerCalendar(10, limit.CalendarDay, time.UTC)} {
		if _, err := plan.Choose(l, plan.Need{Wrong: plan.AtMost(0.1), Traffic: recorded}); !errors.Is(err, plan.ErrInvalidNeed) {
			t.Errorf("%v, wrong decisions: %v", l, err)
		}
	}
	if _, err := plan.Choose(limit.PerMinute(0), plan.Need{Bytes: 300}); !errors.Is(err, limit.ErrInvalidLimit) {
		t.Error(err)
	}
}

// Met does not crash on a need that says nothing about which traffic may be decided wrongly.
func TestMetWithoutTraffic(t *testing.T) {
	l := limit.PerMinute(10)
	met, err := plan.Need{Wrong: plan.AtMost(0.1)}.Met(plan.Candidate{Limit: l, Algorithm: limit.GCRA()})
	if met || !errors.Is(err, plan.ErrInvalidNeed) {
		t.Error(met, err)
	}
}

// A need that nothing can meet is refused, with the candidates that come closest.
func TestUnmetNeedSaysWhatComesClosest(t *testing.T) {
	_, err := plan.Choose(limit.PerMinute(10_000), plan.Need{Above: plan.AtMost(0), Late: plan.AtMost(0), Bytes: 1000})
	if !errors.Is(err, plan.ErrUnmet) {
		t.Fatal(err)
	}
	for _, want := range []string{"10000/1m", "never above the limit", "no capacity returned late", "1000 bytes", "least memory: fixed-window, 168 bytes"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
}

// Of several candidates that come equally close, the error names the one that is nearest to the rest of
// the need. A counter of two sub-windows never exceeds the limit either, but it returns capacity half a
// window late.
func TestUnmetNeedSaysTheMostExactOfThoseThatComeClosest(t *testing.T) {
	_, err := plan.Choose(limit.PerMinute(1_000_000), plan.Need{Above: plan.AtMost(0), Late: plan.AtMost(0)})
	if want := "least above the limit: sliding-counter:k=256,strict, 0 %, which is up to 0.391 % late"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%q is not in: %v", want, err)
	}
}

// The error says of no candidate twice why it does not do.
func TestUnmetNeedDoesNotRepeatItself(t *testing.T) {
	_, err := plan.Choose(limit.PerMinute(1_000_000), plan.Need{Above: plan.AtMost(0), Bytes: 100})
	want := "tierlimit: nothing meets the need: 1000000/1m with never above the limit, at most 6.25 % of the window late, at most 100 bytes a key; " +
		"least memory: fixed-window, 168 bytes; least above the limit: sliding-counter:k=2,strict, 0 %, with 184 bytes; least late: fixed-window, 0 %"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %v", err, want)
	}
}

// A budget for a million keys has the same effect as a millionth of it for each key.
func TestBudgetForAMillionKeys(t *testing.T) {
	l := limit.PerMinute(5000)
	each, err := plan.Choose(l, plan.Need{Bytes: 300})
	if err != nil {
		t.Fatal(err)
	}
	million, err := plan.Choose(l, plan.Need{BytesPerMillion: 300_000_000})
	if err != nil || million.Candidate != each.Candidate {
		t.Errorf("%v for 300 bytes a key, %v for 300 MB a million: %v", each, million, err)
	}
	if _, err := plan.Choose(l, plan.Need{BytesPerMillion: 999_999}); !errors.Is(err, plan.ErrUnmet) {
		t.Errorf("less than a byte a key: %v", err)
	}
}

// If a need states few wrong decisions on given traffic, the chosen candidate meets it, and every
// cheaper candidate does not. One key sends bursts that a fixed window and GCRA decide wrongly.
func TestWrongDecisionsOnTraffic(t *testing.T) {
	var requests []traffic.Request
	for i := range 400 {
		requests = append(requests, traffic.Request{At: time.UnixMicro(epoch).Add(time.Duration(i*i%977) * 150 * time.Millisecond), Key: "k"})
	}
	l, need := limit.PerMinute(20), plan.Need{Wrong: plan.AtMost(0.03), Traffic: traffic.New(requests)}
	p, err := plan.Choose(l, need)
	if err != nil {
		t.Fatal(err)
	}
	candidates, err := plan.Candidates(l)
	if err != nil {
		t.Fatal(err)
	}
	cheaper := 0
	for _, c := range candidates {
		wrong, err := need.Traffic.Wrong(c)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case c == p.Candidate && wrong > 0.03:
			t.Errorf("%v decides %v wrongly", c, wrong)
		case c.Full(0) < p.BytesFull:
			cheaper++
			if wrong <= 0.03 {
				t.Errorf("chosen is %v, but %v is cheaper and decides %v wrongly", p, c, wrong)
			}
		case c.Algorithm == limit.SlidingLog() && wrong != 0:
			t.Errorf("the log decides %v wrongly", wrong)
		}
	}
	if cheaper == 0 {
		t.Errorf("%v is the cheapest of all, which shows nothing", p)
	}
	if _, err := plan.Choose(l, plan.Need{Wrong: plan.AtMost(0), Traffic: need.Traffic, Bytes: 170}); !errors.Is(err, plan.ErrUnmet) || !strings.Contains(err.Error(), "fewest wrong") {
		t.Error(err)
	}
}

// A calendar limit uses a fixed window, whatever the need.
func TestCalendar(t *testing.T) {
	l := limit.PerCalendar(1000, limit.CalendarMonth, time.UTC)
	p, err := plan.Choose(l, plan.Need{Above: plan.AtMost(2)})
	if err != nil || p.Algorithm != limit.FixedWindow() {
		t.Errorf("%v, %v", p, err)
	}
	if _, err := plan.Choose(l, plan.Need{Above: plan.AtMost(1)}); !errors.Is(err, plan.ErrUnmet) {
		t.Errorf("up to three times the limit are possible: %v", err)
	}
	recorded := traffic.New([]traffic.Request{{At: time.Unix(1, 0), Key: "k"}})
	if _, err := plan.Choose(l, plan.Need{Wrong: plan.AtMost(1), Traffic: recorded}); !errors.Is(err, plan.ErrInvalidNeed) {
		t.Errorf("there is no exact log of the calendar: %v", err)
	}
}
