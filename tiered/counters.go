package tiered

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/remote"
)

// counters are the limiter's own counts, which [Limiter.Stats] returns. They use no types of a monitoring
// system, because a service must not have to link one just to limit requests. Nothing is counted by key.
type counters struct {
	trips     *histogram
	tripCalls *histogram
	errors    map[remote.Kind]*atomic.Uint64 // has all kinds, and does not change

	mu      sync.Mutex // guards the maps, the sources, past, and the pointers and uses of ruleCounters
	rules   map[string]*ruleCounters
	sources map[string]*SourceStats
	past    past
	idle    int // the number of names that no rule uses, see forget
}

// past has what was counted under names that are forgotten, so that the sums over all rules do not become smaller.
type past struct {
	allowed, denied uint64
	holds           HoldStats
}

func newCounters() *counters {
	c := &counters{
		trips: newHistogram([]float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 10}),
		// A trip has few entries, but calls for one key share an entry. So a trip may carry as many calls
		// as wait.
		tripCalls: newHistogram([]float64{1, 4, 16, 64, 256, 1024, 4096, 16384}),
		errors:    make(map[remote.Kind]*atomic.Uint64),
		rules:     make(map[string]*ruleCounters),
		sources:   make(map[string]*SourceStats),
	}
	for _, kind := range remote.Kinds() {
		c.errors[kind] = new(atomic.Uint64)
	}
	return c
}

// trip counts a trip to Redis.
func (c *counters) trip(calls int, took time.Duration, err error) {
	c.trips.observe(took.Seconds())
	c.tripCalls.observe(float64(calls))
	if err != nil {
		c.failedToAsk(err)
	}
}

// failedToAsk counts a trip, a heartbeat or a probe of Redis that failed.
func (c *counters) failedToAsk(err error) { c.errors[remote.KindOf(err)].Add(1) }

// ruleCounters are the counters that all rules of one name share, including those of [Rule.WithLimit]. A
// pointer is nil until a rule needs it.
type ruleCounters struct {
	uses      int // the number of rules that have them, see forget
	decisions *decisionCounts
	dryRun    *decisionCounts
	shadowed  atomic.Bool // a rule has a shadow
	shadow    shadowCounts
	failed    failures
	holds     holdCounts
}

// failures counts calls that ended with an error, by who has to act on it: the author of the calling
// code, the operator of the limiter, or the caller's caller.
type failures struct {
	invalid   atomic.Uint64 // the call was a mistake
	cancelled atomic.Uint64 // the context ended
	closed    atomic.Uint64 // the limiter was closed
	other     atomic.Uint64
}

// of returns the counter of an error.
func (f *failures) of(err error) *atomic.Uint64 {
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case is(context.Canceled), is(context.DeadlineExceeded):
		return &f.cancelled
	case is(limit.ErrInvalidKey), is(limit.ErrInvalidCost), is(limit.ErrCostExceedsLimit), is(limit.ErrInvalidRule),
		is(limit.ErrInvalidHold), is(limit.ErrNotForLimit), is(limit.ErrNilContext):
		return &f.invalid
	case is(limit.ErrClosed):
		return &f.closed
	}
	return &f.other
}

func (f *failures) stats() ErrorStats {
	return ErrorStats{Invalid: f.invalid.Load(), Cancelled: f.cancelled.Load(), Closed: f.closed.Load(), Other: f.other.Load()}
}

// rule returns the counters of a rule, which all rules of its name share, and the counters for its
// decisions, which are separate for rules on a dry run. Call forget when the rule is no longer used.
func (c *counters) rule(name string, dryRun bool) (*ruleCounters, *decisionCounts) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.rules[name]
	if r == nil {
		r = &ruleCounters{}
		c.rules[name] = r
	} else if r.uses == 0 {
		c.idle--
	}
	r.uses++
	decisions := &r.decisions
	if dryRun {
		decisions = &r.dryRun
	}
	if *decisions == nil {
		*decisions = new(decisionCounts)
	}
	return r, *decisions
}

// maxIdle is the number of names without rules that are kept until the next call of [Limiter.Stats].
const maxIdle = 1000

// forget ends the use of counters by a rule. When no rule uses them any more, their name is forgotten:
// rules of a file come and go, and a file that is refused may have had any names.
//
// It is forgotten by the next call of [Limiter.Stats], which leaves it out. If it came back between two calls and
// began at zero, a counter would have become smaller without having been away, and an exporter of differences would
// report a negative number.
func (c *counters) forget(r *ruleCounters) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.uses--; r.uses > 0 {
		return
	}
	if c.idle++; c.idle > maxIdle { // perhaps nobody reads them
		c.forgetIdle()
	}
}

// forgetIdle forgets the names that no rule uses. mu must be held.
func (c *counters) forgetIdle() {
	for name, r := range c.rules {
		if r.uses > 0 {
			continue
		}
		delete(c.rules, name)
		allowed, denied := r.total()
		c.past.allowed += allowed
		c.past.denied += denied
		c.past.holds.add(&r.holds)
	}
	c.idle = 0
}

// total returns the number of decisions of all rules so far.
func (c *counters) total() (allowed, denied uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	allowed, denied = c.past.allowed, c.past.denied
	for _, r := range c.rules {
		a, d := r.total()
		allowed += a
		denied += d
	}
	return allowed, denied
}

// total returns the number of decisions of all rules of the name, including those on a dry run.
func (r *ruleCounters) total() (allowed, denied uint64) {
	for _, counts := range []*decisionCounts{r.decisions, r.dryRun} {
		for _, tier := range counts.stats() {
			allowed += tier.Allowed
			denied += tier.Denied
		}
	}
	return allowed, denied
}

// decided returns the decisions of all rules of a name by tier, including decisions on a dry run. So the
// counts do not become smaller when a rule is put on a dry run or taken off it.
func (c *counters) decided(r *ruleCounters) []TierStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, dry := r.decisions.stats(), r.dryRun.stats()
	if all == nil {
		return dry
	}
	for i := range dry {
		all[i].Allowed += dry[i].Allowed
		all[i].Denied += dry[i].Denied
		all[i].HeldBack += dry[i].HeldBack
	}
	return all
}
