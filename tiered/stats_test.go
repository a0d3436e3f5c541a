package tiered

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// ruleStats returns the statistics of the rules with the given name.
func ruleStats(l *Limiter, name string) RuleStats {
	for _, r := range l.Stats().Rules {
		if r.Name == name {
			return r
		}
	}
	return RuleStats{}
}

func TestErrorsAreCountedByReason(t *testing.T) {
	for err, want := range map[error]ErrorStats{
		limit.ErrInvalidKey:       {Invalid: 1},
		limit.ErrInvalidCost:      {Invalid: 1},
		limit.ErrCostExceedsLimit: {Invalid: 1},
		limit.ErrInvalidRule:      {Invalid: 1},
		context.Canceled:          {Cancelled: 1},
		context.DeadlineExceeded:  {Cancelled: 1},
		limit.ErrClosed:           {Closed: 1},
		limit.ErrNotRedis:         {Other: 1},
	} {
		var f failures
		f.of(fmt.Errorf("rule r: %w", err)).Add(1)
		if got := f.stats(); got != want {
			t.Errorf("%v counts as %+v, want %+v", err, got, want)
		}
	}
}

// An outage counts once, however often probes fail.
func TestAnOutageIsCountedOnce(t *testing.T) {
	server := redistest.Start(t)
	l := newLimiterOn(t, server.Client(t), redistest.Prefix())
	server.Kill()
	l.shard.Breaker.ForceOpen(errors.New("killed"))
	inVain := errors.New("still gone")
	redistest.Eventually(t, "it is probed", func() bool { return l.shard.Breaker.Probe(func() error { return inVain }) == inVain })
	if opened := l.Stats().Outages; opened != 1 {
		t.Errorf("opened %v times, want 1", opened)
	}
	redistest.Eventually(t, "the time is counted for the outage", func() bool { return l.Stats().TimeInState[Outage] > 0 })
}

func TestStatsCountWhatHappened(t *testing.T) {
	clock := newVirtual()
	made := time.Now()
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), VirtualClock(clock.now))
	newRule(t, l, "unused", limit.PerMinute(2), Use(limit.GCRA()), Shadow(1))
	r := newRule(t, l, "r", limit.PerMinute(2))
	for range 4 {
		mustAllow(t, r, "k", 1)
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, mistake := range []error{
		errorOf(r.Allow(context.Background(), "")),
		errorOf(r.AllowN(context.Background(), "k", 3)),
		errorOf(r.Allow(cancelled, "k")),
	} {
		if mistake == nil {
			t.Fatal("a mistake had no error")
		}
	}
	s := l.Stats()
	if s.Since.Before(made.Add(-time.Second)) || s.Since.After(time.Now()) {
		t.Errorf("counted since %v, made at %v", s.Since, made)
	}
	want := []TierStats{
		{Tier: limit.TierRedis, Allowed: 2, Denied: 1},
		{Tier: limit.TierLocal, Denied: 1},
		{Tier: limit.TierFallback},
		{Tier: limit.TierLease},
		{Tier: limit.TierOverload},
	}
	if len(s.Rules) != 2 || s.Rules[0].Name != "r" || s.Rules[1].Name != "unused" {
		t.Fatalf("rules %+v", s.Rules)
	}
	if got := s.Rules[0]; !slices.Equal(got.Decisions, want) || got.DryRun != nil || got.Shadow != nil {
		t.Errorf("%+v, want decisions %+v", got, want)
	}
	if got, want := s.Rules[0].Errors, (ErrorStats{Invalid: 2, Cancelled: 1}); got != want {
		t.Errorf("errors %+v, want %+v", got, want)
	}
	if got := s.Rules[1].Shadow; got == nil || *got != (ShadowStats{}) {
		t.Errorf("shadow %+v, want one with no comparisons", got)
	}
	if s.State != Healthy || s.FleetSize != 1 || s.RememberedDenials != 1 {
		t.Errorf("state %v, fleet of %d, %d denials remembered", s.State, s.FleetSize, s.RememberedDenials)
	}
	if got, want := s.Shards, []ShardStats{{State: Healthy, Breaker: BreakerClosed}}; !slices.Equal(got, want) {
		t.Errorf("shards %+v, want %+v", got, want)
	}
	trips := s.Trips
	if trips.Seconds.Count() == 0 || trips.Seconds.Count() != trips.Calls.Count() || trips.Seconds.Sum <= 0 || trips.Calls.Sum < 3 {
		t.Errorf("trips %+v", trips)
	}
	if n, ok := trips.Errors["timeout"]; n != 0 || !ok || len(trips.Errors) != 6 {
		t.Errorf("errors of trips: %v", trips.Errors)
	}
}

// Stats has each shard of a Cluster, with its address.
func TestStatsOfACluster(t *testing.T) {
	t.Parallel()
	l := newLimiterOn(t, redistest.StartCluster(t, 2).Client(t), redistest.Prefix())
	var masters []string
	for _, s := range l.Stats().Shards {
		masters = append(masters, s.Master)
	}
	if slices.Sort(masters); len(slices.Compact(masters)) != 2 || !strings.Contains(masters[0], ":") {
		t.Errorf("masters %q", masters)
	}
}

// In an outage, and in a process without requests, there are no trips. That Redis refuses is counted nevertheless, by
// heartbeats and probes, also if it does so from the start.
func TestProbesThatFailAreCounted(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	idle := newLimiterOn(t, server.Client(t), redistest.Prefix())
	if err := server.Client(t).Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	late := newLimiterOn(t, server.Client(t), redistest.Prefix())
	for name, l := range map[string]*Limiter{"a limiter without requests": idle, "one that started later": late} {
		redistest.Eventually(t, name+" counts its probes", func() bool { return l.Stats().Trips.Errors["unavailable"] > 3 })
		if s := l.Stats().Trips; s.Seconds.Count() != 0 || s.Errors["auth"] != 0 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// A value falls into the first bucket whose bound it does not exceed.
func TestHistogram(t *testing.T) {
	h := newHistogram([]float64{1, 4})
	for _, v := range []float64{0.5, 1, 1.5, 4, 5, 100} {
		h.observe(v)
	}
	got := h.stats()
	if !slices.Equal(got.Counts, []uint64{2, 2, 2}) || got.Sum != 112 || got.Count() != 6 {
		t.Errorf("%+v", got)
	}
	got.Bounds[0] = 3 // the slice belongs to the caller
	if h.bounds[0] != 1 {
		t.Error("changing what Stats returned changes the histogram")
	}
}

// Stats may be called while rules are made and decide, and misses no decision.
func TestStatsWhileDeciding(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), VirtualClock(newVirtual().now))
	var stop atomic.Bool
	var reading, deciding sync.WaitGroup
	reading.Go(func() {
		for last := uint64(0); !stop.Load(); runtime.Gosched() {
			n := uint64(0)
			for _, r := range l.Stats().Rules {
				for _, tier := range r.Decisions {
					n += tier.Allowed + tier.Denied
				}
			}
			if n < last {
				t.Errorf("%d decisions, after %d", n, last)
			}
			last = n
		}
	})
	const callers, each = 4, 50
	for caller := range callers {
		r := newRule(t, l, fmt.Sprint("r", caller), limit.PerMinute(5))
		deciding.Go(func() {
			for range each {
				if _, err := r.Allow(context.Background(), "k"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	deciding.Wait()
	stop.Store(true)
	reading.Wait()
	for caller := range callers {
		n := uint64(0)
		for _, tier := range ruleStats(l, fmt.Sprint("r", caller)).Decisions {
			n += tier.Allowed + tier.Denied
		}
		if n != each {
			t.Errorf("rule %d: %d decisions counted, %d made", caller, n, each)
		}
	}
}

func TestSourcesOfRules(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	if sources := l.Stats().Sources; sources != nil {
		t.Errorf("%+v", sources)
	}
	l.SourceLoaded("b", errors.New("refused"))
	l.SourceLoaded("a", nil)
	loaded := l.Stats().Sources[0].LastSuccess
	if time.Since(loaded) > time.Minute {
		t.Errorf("loaded at %v", loaded)
	}
	l.SourceLoaded("a", errors.New("refused"))
	want := []SourceStats{{Name: "a", Loads: 1, Failures: 1, LastSuccess: loaded}, {Name: "b", Failures: 1}}
	if got := l.Stats().Sources; !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
