package tiered

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/model"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// changing is a fleet whose instances come and go while it plays traffic on one key. Time is virtual, because
// such a history would take minutes of real time.
type changing struct {
	t      *testing.T
	server *redistest.Server
	prefix string
	window time.Duration
	fleet  int // the size that instances assume if they start without Redis
	use    limit.Algorithm
	clock  *virtual
	random *rand.Rand

	parts   []part
	stamps  []int64 // when units were granted
	cut     int     // the number of stamps from before Redis was lost
	without int     // requests that were decided without Redis
}

// part is an instance and its traffic, as a factor of the limit.
type part struct {
	rule *Rule
	load float64
}

const changingQuota = 400

// newChanging returns a fleet whose instances know each other, after two windows of the given load.
func newChanging(t *testing.T, algorithm limit.Algorithm, window time.Duration, fleet int, loads []float64) *changing {
	c := &changing{
		t: t, server: redistest.Start(t), prefix: redistest.Prefix(), window: window, fleet: fleet, use: algorithm,
		clock: newVirtual(), random: rand.New(rand.NewPCG(1, uint64(window))),
	}
	for _, load := range loads {
		c.parts = append(c.parts, c.start(load))
	}
	for _, p := range c.parts {
		redistest.Eventually(t, "all instances know of each other", func() bool { return p.rule.limiter.FleetSize() == len(loads) })
	}
	c.play(2 * window)
	return c
}

// start starts an instance.
func (c *changing) start(load float64) part {
	l := newLimiterOn(c.t, c.server.Client(c.t), c.prefix, VirtualClock(c.clock.now), FleetSize(c.fleet))
	return part{newRule(c.t, l, "r", limit.Per(changingQuota, c.window), Use(c.use)), load}
}

// lose calls how, which takes Redis away, and opens the breakers of all instances.
func (c *changing) lose(how func()) {
	c.cut = len(c.stamps)
	how()
	for _, p := range c.parts {
		p.rule.limiter.shard.Breaker.ForceOpen(errors.New("lost"))
	}
}

// play makes requests arrive at random for the given time.
func (c *changing) play(span time.Duration) {
	const steps = 400 // per window
	for range int(steps * span / c.window) {
		c.clock.advance(c.window / steps)
		for _, i := range c.random.Perm(len(c.parts)) {
			p := c.parts[i]
			for due := c.random.ExpFloat64(); due < p.load*changingQuota/steps; due += c.random.ExpFloat64() {
				d := mustAllow(c.t, p.rule, "k", 1)
				if d.Degraded() {
					c.without++
				}
				if d.Allowed {
					c.stamps = append(c.stamps, c.clock.now().UnixMicro())
				}
			}
		}
	}
}

// most returns the largest number of units in any window, as a factor of the limit.
func (c *changing) most() float64 {
	ones := slices.Repeat([]int64{1}, len(c.stamps))
	return float64(model.MaxInWindow(c.stamps, ones, c.window.Microseconds())) / changingQuota
}

// holds checks that the fleet stayed within the bound and, if reached is set, came close to it. The ledger of
// each instance may add a fifteenth to its share.
func (c *changing) holds(bound float64, reached bool) {
	c.t.Helper()
	most := c.most()
	c.t.Logf("%v: at most %.2f times the limit in a window, bound %.2f; %d units granted without Redis, %d requests decided",
		c.window, most, bound*16/15, len(c.stamps)-c.cut, c.without)
	if most > bound*16/15 {
		c.t.Errorf("%v: %.2f times the limit in a window, above %.2f", c.window, most, bound*16/15)
	}
	if reached && most < 0.85*bound {
		c.t.Errorf("%v: %.2f times the limit in a window, so the bound of %.2f says nothing", c.window, most, bound)
	}
	if c.without < 4*changingQuota {
		c.t.Errorf("%v: only %d requests were decided without Redis: the test shows little", c.window, c.without)
	}
}

const usualColdStart = time.Minute // see ColdStart

// changingWindows has a window that is shorter and one that is longer than a cold start.
var changingWindows = []time.Duration{10 * time.Second, 160 * time.Second}

var unevenLoads = []float64{3 * 0.70, 3 * 0.15, 3 * 0.10, 3 * 0.05}

// Law 11: four instances become twelve while Redis is lost. The new instances know nothing of the fleet, and each
// has traffic for half of the limit. Each adds the part of the limit that follows from the size of the fleet that
// it assumes.
func TestLaw11TwelveInstancesFromFourWithoutRedis(t *testing.T) {
	t.Parallel()
	for _, window := range changingWindows {
		for _, assumed := range []int{12, assumedInstances} {
			const added = 8
			c := newChanging(t, limit.SlidingLog(), window, assumed, unevenLoads)
			c.lose(c.server.Kill)
			c.play(window / 2)
			for range added {
				c.parts = append(c.parts, c.start(0.5))
			}
			c.play(3 * window)
			c.holds(1+added/float64(assumed), true)
		}
	}
}

// Law 11: all instances of a fleet are replaced while Redis is lost, one per window, and each successor gets its
// predecessor's traffic. A successor does not know what its predecessor granted, so the grants of both add up for
// a window. With uneven traffic, the order of replacement matters.
func TestLaw11InstancesAreReplacedWithoutRedis(t *testing.T) {
	t.Parallel()
	ascending := slices.Clone(unevenLoads)
	slices.Reverse(ascending)
	for _, test := range []struct {
		name  string
		loads []float64
		bound float64 // the shares of instances not replaced yet, and a quarter for each successor
	}{
		{"even traffic", slices.Repeat([]float64{3.0 / 4}, 4), 1 + 0.25},
		{"the heaviest first", unevenLoads, 1 + 0.25},
		{"the heaviest last", ascending, 0.70 + 4*0.25},
	} {
		for _, window := range changingWindows {
			t.Run(fmt.Sprint(test.name, ", ", window), func(t *testing.T) {
				c := newChanging(t, limit.SlidingLog(), window, len(test.loads), test.loads)
				c.lose(c.server.Kill)
				// After this, units are granted as early in a window as possible, so instances that leave have
				// used up their shares.
				c.play(window / 2)
				for i, p := range c.parts {
					c.play(window)
					c.parts[i] = c.start(p.load)
				}
				c.play(2 * window)
				c.holds(test.bound, window > usualColdStart) // else predecessors' units leave as shares grow
			})
		}
	}
}

// Law 11: an instance that restarts again and again while Redis is lost gets one share per cold start.
func TestLaw11AnInstanceStartsAgainAndAgainWithoutRedis(t *testing.T) {
	t.Parallel()
	for _, window := range changingWindows {
		c := newChanging(t, limit.SlidingLog(), window, len(unevenLoads), unevenLoads)
		c.lose(c.server.Kill)
		const starts = 8 // per window
		for range 2 * starts {
			c.parts[3] = c.start(unevenLoads[0])
			c.play(window / starts)
		}
		shares := float64(window) / float64(min(window, usualColdStart))
		c.holds(1+shares/float64(len(unevenLoads))+starts/float64(changingQuota), false)
	}
}

// Law 11: GCRA lets twice the limit through in a window that begins with a burst. If Redis is lost at the end of
// that window, the shares include everything that was granted in it, so the fleet grants as much in any window of
// the outage.
func TestLaw11GCRAThroughAnOutage(t *testing.T) {
	t.Parallel()
	const window = 160 * time.Second
	c := newChanging(t, limit.GCRA(), window, 4, slices.Repeat([]float64{3.0 / 4}, 4))
	c.clock.advance(2 * window)
	c.play(window)
	c.lose(c.server.Pause)
	c.stamps, c.cut = nil, 0
	c.play(3 * window)
	c.holds(2, true)
}

// Law 11: fixed windows let twice the limit through around a boundary. If Redis is lost less than a window after
// a boundary, the shares include grants from both sides of the boundary, so the fleet grants as much in any
// window of the outage.
func TestLaw11FixedWindowsThroughAnOutage(t *testing.T) {
	t.Parallel()
	const window = 160 * time.Second
	c := newChanging(t, limit.FixedWindow(), window, 4, slices.Repeat([]float64{3.0 / 4}, 4))
	untilBoundary := func() time.Duration { return window - c.clock.now().Sub(c.clock.now().Truncate(window)) }
	c.clock.advance(untilBoundary() + window*3/5)
	c.play(window * 4 / 5) // grants the limit late in one window, and again early in the next
	c.lose(c.server.Pause)
	c.play(2*window + untilBoundary()) // to the boundary
	c.holds(2, true)
	c.server.Resume()
	for _, p := range c.parts {
		redistest.Eventually(t, "Redis is back", func() bool { return !p.rule.limiter.Degraded() })
	}
	c.clock.advance(2 * time.Second) // the instances settle for at least one second
	for _, p := range c.parts {
		redistest.Eventually(t, "Redis decides alone", func() bool { return p.rule.limiter.State() == Healthy })
	}
	c.play(window)
	c.holds(2, true)
}
