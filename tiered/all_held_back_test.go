package tiered

import (
	"context"
	"slices"
	"testing"

	"github.com/tierlimit/tierlimit/internal/inspect"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// A denial is counted only for the limit that denied, whether Redis decides in one trip or slot by slot,
// or the denial comes from memory or the outage policy. The other limits are held back.
func TestAllowAllBlamesOnlyWhoDenies(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]func(t *testing.T) *Limiter{
		"one node": func(t *testing.T) *Limiter {
			return newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
		},
		"cluster": func(t *testing.T) *Limiter {
			return newLimiterOn(t, redistest.SharedCluster(t).Client(t), redistest.Prefix())
		},
		"without Redis": func(t *testing.T) *Limiter {
			server := redistest.Start(t)
			l := newLimiterOn(t, server.Client(t), redistest.Prefix())
			loseRedis(server, l)
			return l
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := client(t)
			tenant, address := newRule(t, l, "tenant", limit.PerHour(1000)), newRule(t, l, "address", limit.PerHour(1))
			var watched []bool
			watch := inspect.Watcher(func(rule, _ string, denied bool) {
				if rule == "tenant" {
					watched = append(watched, denied)
				}
			})
			l.watcher.Store(&watch)
			mustAllow(t, address, "192.0.2.1", 1)
			const groups = 4 // Redis or the outage policy denies the first group; denials by Redis are repeated from memory
			for i := range groups {
				for _, q := range [][]Request{
					{{Rule: tenant, Key: "acme", Cost: 1}, {Rule: address, Key: "192.0.2.1", Cost: 1}},
					{{Rule: address, Key: "192.0.2.1", Cost: 1}, {Rule: tenant, Key: "acme", Cost: 1}},
				} {
					ds, err := l.AllowAll(context.Background(), q...)
					if err != nil {
						t.Fatal(err)
					}
					for j, d := range ds {
						innocent := q[j].Rule == tenant
						if d.Allowed || d.HeldBack != innocent || d.Denied() == innocent || (d.RetryAfter == 0) != innocent {
							t.Errorf("group %d, rule %s: %+v", i, q[j].Rule.Name(), d)
						}
					}
				}
			}
			if n := counted(l, "tenant", deniedOf); n != 0 {
				t.Errorf("%d denials are counted for the tenant's rule", n)
			}
			if n := counted(l, "tenant", heldBackOf); n != 2*groups {
				t.Errorf("%d are counted as held back, want %d", n, 2*groups)
			}
			if n := counted(l, "address", deniedOf); n != 2*groups {
				t.Errorf("%d denials are counted for the address's rule, want %d", n, 2*groups)
			}
			if slices.Contains(watched, true) || len(watched) != 2*groups {
				t.Errorf("the live page is told of the tenant's: denied %v", watched)
			}
		})
	}
}

// A limit that would be asked only after the one that denied, on a Cluster or on a dry run, is also held back,
// because it has not denied.
func TestWhoIsNotAskedIsHeldBack(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix(), RememberDenials(0))
	full, dry := newRule(t, l, "full", limit.PerHour(1)), newRule(t, l, "dry", limit.PerHour(1), DryRun())
	mustAllow(t, full, "k", 1)
	ds, err := l.AllowAll(context.Background(), Request{Rule: dry, Key: "k", Cost: 1}, Request{Rule: full, Key: "k", Cost: 1})
	if err != nil || !ds[0].HeldBack || ds[0].Denied() || ds[1].HeldBack || !ds[1].Denied() {
		t.Errorf("%+v, %v", ds, err)
	}
}

// counted returns the number of a rule's decisions with an outcome, over all tiers.
func counted(l *Limiter, rule string, outcome func(TierStats) uint64) (n int) {
	for _, tier := range ruleStats(l, rule).Decisions {
		n += int(outcome(tier))
	}
	return n
}

func deniedOf(t TierStats) uint64   { return t.Denied }
func heldBackOf(t TierStats) uint64 { return t.HeldBack }
