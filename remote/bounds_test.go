package remote

import (
	"fmt"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/model"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// taken asks for units of one key and records the charges.
type taken struct {
	t             *testing.T
	script        *Script
	key           string
	rule          *Rule
	stamps, costs []int64
}

func newTaken(t *testing.T, script *Script, l limit.Limit, a limit.Algorithm) *taken {
	return &taken{t: t, script: script, key: redistest.Prefix() + "bound", rule: newRule(t, l, a)}
}

// all takes all units that are free at a time.
func (g *taken) all(at int64) {
	g.t.Helper()
	if free := decide(g.t, g.script, g.key, g.rule, at, 1); free.Granted == 1 {
		g.stamps, g.costs = append(g.stamps, at), append(g.costs, 1)
		if free.Remaining > 0 {
			decide(g.t, g.script, g.key, g.rule, at, free.Remaining)
			g.stamps, g.costs = append(g.stamps, at), append(g.costs, free.Remaining)
		}
	}
}

func (g *taken) worst(window time.Duration) int64 {
	return model.MaxInWindow(g.stamps, g.costs, window.Microseconds())
}

// Law 1: the stated bounds are tight. For every algorithm, k and rounding, an adversary that knows the algorithm
// gets exactly the stated number of units.
func TestLaw1BoundsAreReached(t *testing.T) {
	const quota, window = 100, 256 * time.Second // sub-windows of whole seconds, or halves of them
	w := window.Microseconds()
	script := NewScript(redistest.Shared(t).Client(t))
	start := int64(epoch)/w*w + w // where a window begins, and with it a sub-window
	l := limit.Per(quota, window)

	for k := 1; k <= limit.MaxBuckets; k *= 2 {
		t.Run(fmt.Sprintf("estimate k=%d", k), func(t *testing.T) {
			a := limit.SlidingCounter(k, limit.Estimate)
			g := newTaken(t, script, l, a)
			// The adversary takes all units at the last moment of a sub-window. It takes all again at the latest
			// moment that still shares a window with the first one.
			g.all(start - 1)
			g.all(start - 1 + w - 1)
			if got := g.worst(window); got != a.WorstCase(l) {
				t.Errorf("%d units in a window, stated bound %d", got, a.WorstCase(l))
			}
			if k > 1 {
				if got := g.worst(window - window/time.Duration(k)); got != quota {
					t.Errorf("%d units in W(1-1/k), want %d", got, quota)
				}
			}
		})
		t.Run(fmt.Sprintf("strict k=%d", k), func(t *testing.T) {
			a := limit.SlidingCounter(k, limit.Strict)
			g := newTaken(t, script, l, a)
			// The adversary applies constant pressure: it asks at every beginning and end of a sub-window.
			step := w / int64(k)
			periods := int64(3)
			for i := range periods * int64(k+1) {
				g.all(start + i*step)
				g.all(start + (i+1)*step - 1)
			}
			if got := g.worst(window); got != quota {
				t.Errorf("%d units in a window, stated bound %d", got, quota)
			}
			total := int64(0)
			for _, c := range g.costs {
				total += c
			}
			if total != periods*quota {
				t.Errorf("%d units in %d times k+1 sub-windows, want N in each", total, periods)
			}
		})
	}

	for _, burst := range []int64{1, 10, 100} {
		t.Run(fmt.Sprintf("gcra burst=%d", burst), func(t *testing.T) {
			l := l.WithBurst(burst)
			g := newTaken(t, script, l, limit.GCRA())
			for at := start; at < start+2*w; at += w / 1000 {
				g.all(at)
			}
			if got := g.worst(window); got != limit.GCRA().WorstCase(l) {
				t.Errorf("%d units in a window, stated bound %d", got, limit.GCRA().WorstCase(l))
			}
		})
	}
	t.Run("fixed window", func(t *testing.T) {
		g := newTaken(t, script, l, limit.FixedWindow())
		g.all(start - 1)
		g.all(start)
		if got := g.worst(window); got != 2*quota {
			t.Errorf("%d units in a window, stated bound %d", got, 2*quota)
		}
	})
}
