// Package synthetic generates traffic for a limit: loads that show where algorithms differ. The same
// arguments generate the same traffic.
package synthetic

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/tierlimit/tierlimit/internal/simulate"
	"github.com/tierlimit/tierlimit/plan"
)

// Load is a kind of traffic.
type Load struct {
	// Name is the load's name on the command line.
	Name string
	// Words describe the load.
	Words string

	generate func(g *generator)
	adverse  bool
}

// Loads are all loads.
var Loads = []Load{
	{Name: "poisson", Words: "independent requests of up to 100 keys, from a fifth of the limit to twice as much", generate: poisson},
	{Name: "boundary", Words: "20 keys that send the whole limit right before the end of every third window, and again right after it", generate: boundary},
	{Name: "on-off", Words: "up to 50 keys that send for half a window at four times the limit's rate, and then pause for a window or so", generate: onOff},
	{Name: "flash-crowd", Words: "up to 200 keys at a third of the limit, all of which send six times as much in the middle fifth of the time", generate: flashCrowd},
	{Name: "abuser", Words: "up to 100 keys at a third of the limit, and one that sends half of all requests", generate: abuser},
	{Name: "adversary", Words: "for each configuration, an attacker who knows it and sends whatever lets most through in one window", adverse: true},
}

// Names lists the names of all loads.
func Names() string {
	var names []string
	for _, l := range Loads {
		names = append(names, l.Name)
	}
	return strings.Join(names, ", ")
}

// Parse returns the load with the given name.
func Parse(name string) (Load, error) {
	for _, l := range Loads {
		if l.Name == name {
			return l, nil
		}
	}
	return Load{}, fmt.Errorf("load %q: must be one of %s", name, Names())
}

// Traffic generates about the given number of requests for a candidate. They are the same for all
// candidates of a limit, except for those of the adversary.
func (l Load) Traffic(c plan.Candidate, requests int) *simulate.Traffic {
	return simulate.New(func(yield func(int64, string) bool) {
		g := &generator{
			quota: float64(c.Limit.Quota()), window: float64(c.Limit.Window().Microseconds()),
			requests: requests, random: rand.New(rand.NewPCG(42, 6)), yield: yield,
		}
		if l.adverse {
			g.adversary(c)
			return
		}
		l.generate(g)
	})
}

// Least returns about how many requests the load has at least under a limit of the given quota: some loads send
// the whole limit.
func (l Load) Least(quota int64) int64 {
	switch {
	case l.adverse:
		return 2 * quota
	case l.Name == "boundary":
		return 2 * quota * boundaryKeys
	}
	return 1
}

// ForEach reports whether every candidate gets its own traffic.
func (l Load) ForEach() bool { return l.adverse }

// start is the time at which all traffic starts: a full hour of 2026, in µs.
const start = 1_790_121_600_000_000

// generator generates one traffic.
type generator struct {
	quota, window float64 // window in µs
	requests      int
	random        *rand.Rand
	yield         func(int64, string) bool
}

// send generates one request, at the given number of µs after the start.
func (g *generator) send(after float64, key string) {
	g.yield(start+int64(after), key)
}

// stream generates requests of a key at random times. The rate is a multiple of the limit's own rate.
func (g *generator) stream(key string, rate, from, until float64) {
	mean := g.window / g.quota / rate
	for t := from + g.random.ExpFloat64()*mean; t < until; t += g.random.ExpFloat64() * mean {
		g.send(t, key)
	}
}

// keys returns the number of keys, up to most, with which the traffic lasts for at least ten windows
// if each key sends at the given mean rate (a multiple of the limit's rate).
func (g *generator) keys(most int, rate float64) int {
	return min(most, max(1, int(float64(g.requests)/(10*g.quota*rate))))
}

// length returns the time in which the given number of keys send all requests, if each sends at the
// given mean rate.
func (g *generator) length(keys int, rate float64) float64 {
	return float64(g.requests) / (float64(keys) * rate) / g.quota * g.window
}

func name(i int) string { return fmt.Sprintf("key-%d", i) }

func poisson(g *generator) {
	const least, most = 0.2, 2.0
	mean := (most - least) / math.Log(most/least)
	keys := g.keys(100, mean)
	rate := func(i int) float64 { return least * math.Pow(most/least, (float64(i)+0.5)/float64(keys)) }
	length := g.length(keys, mean)
	for i := range keys {
		g.stream(name(i), rate(i), 0, length)
	}
}

const boundaryKeys = 20

func boundary(g *generator) {
	const keys, every = boundaryKeys, 3
	rounds := max(1, int(float64(g.requests)/(2*g.quota*keys)))
	for i := range keys {
		for round := range rounds {
			end := g.window * float64(every*round+1)
			for n := range int(2 * g.quota) {
				// Half of the requests come in the last hundredth of the window, half right after it.
				near := g.random.Float64() * g.window / 100
				if n%2 == 0 {
					near = -near
				}
				g.send(end+near, name(i))
			}
		}
	}
}

func onOff(g *generator) {
	const rate = 4
	keys := g.keys(50, rate/3.0)
	length := g.length(keys, rate/3.0)
	for i := range keys {
		for t := g.random.Float64() * g.window; t < length; {
			g.stream(name(i), rate, t, min(length, t+g.window/2))
			t += g.window/2 + g.window*g.random.ExpFloat64()
		}
	}
}

func flashCrowd(g *generator) {
	const rate, crowd = 1 / 3.0, 6
	const mean = rate * (0.8 + 0.2*crowd)
	keys := g.keys(200, mean)
	length := g.length(keys, mean)
	for i := range keys {
		g.stream(name(i), rate, 0, 0.4*length)
		g.stream(name(i), rate*crowd, 0.4*length, 0.6*length)
		g.stream(name(i), rate, 0.6*length, length)
	}
}

func abuser(g *generator) {
	const rate = 1 / 3.0
	keys := g.keys(100, 2*rate)
	length := g.length(keys, 2*rate)
	for i := range keys {
		g.stream(name(i), rate, 0, length)
	}
	g.stream("abuser", float64(keys)*rate, 0, length)
}

// adversary attacks over and over, with a new key each time.
func (g *generator) adversary(c plan.Candidate) {
	sent := 0
	for i := 0; sent == 0 || sent < g.requests; i++ {
		for _, at := range simulate.Adversary(c.Limit, c.Algorithm, start+int64(g.window)*int64(i)) {
			g.yield(at, name(i))
			sent++
		}
	}
}
