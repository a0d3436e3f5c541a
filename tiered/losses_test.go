package tiered

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Law 11: if more keys are granted units in an outage than the ledger has room for, rules whose records were lost
// continue to settle, in the whole fleet, until the lost units have left their window. All other rules settle
// until all instances have charged, as usual.
func TestLaw11FloodLeavesOtherRulesAlone(t *testing.T) {
	t.Parallel()
	server, prefix := redistest.Start(t), redistest.Prefix()
	type member struct {
		*Limiter
		flooded, other, light, own *Rule
	}
	var fleet []member
	for range 2 {
		l := newLimiterOn(t, server.Client(t), prefix, Deadline(5*time.Second), LedgerKeys(1))
		m := member{Limiter: l, flooded: newRule(t, l, "flooded", limit.PerDay(10)), other: newRule(t, l, "other", limit.PerDay(10)), light: newRule(t, l, "light", limit.PerDay(1000))}
		own, err := m.flooded.WithLimit(limit.PerDay(1000))
		if err != nil {
			t.Fatal(err)
		}
		m.own = own
		fleet = append(fleet, m)
	}
	redistest.Eventually(t, "there are two", func() bool { return fleet[0].FleetSize() == 2 && fleet[1].FleetSize() == 2 })
	server.Pause()
	for _, m := range fleet {
		m.shard.Breaker.ForceOpen(errors.New("it hangs"))
	}
	mustAllow(t, fleet[0].light, "k", 1) // uses less of its limit than any key of the flood
	for i := range 100 {
		mustAllow(t, fleet[0].flooded, fmt.Sprint("new ", i), 1)
	}
	mustAllow(t, fleet[1].other, "k", 1)
	server.Resume()
	for i, m := range fleet {
		redistest.Eventually(t, "Redis is back", func() bool { return m.State() == Settling })
		redistest.Eventually(t, "all have charged, as far as they can", func() bool { return !m.shard.Settling(m.other.inOutage) })
		if m.shard.Settling(m.light.inOutage) {
			t.Errorf("instance %d: a rule settles that was not flooded, and had few keys on the flooded instance", i)
		}
		if !m.shard.Settling(m.flooded.inOutage) || !m.shard.Settling(m.own.inOutage) || m.State() != Settling {
			t.Errorf("instance %d: the flooded rule settles: %v, for keys with a limit of their own: %v; state %v",
				i, m.shard.Settling(m.flooded.inOutage), m.shard.Settling(m.own.inOutage), m.State())
		}
	}
	if d := mustPeek(t, fleet[1].light, "k"); d.Remaining != 999 {
		t.Errorf("Redis has %d units free of the key that the flood was to push out, want 999", d.Remaining)
	}
	// Redis decides alone about the other rules.
	if d := mustAllow(t, fleet[0].other, "another", 10); !d.Allowed || d.Tier != limit.TierRedis {
		t.Errorf("%+v", d)
	}
	if d := mustAllow(t, fleet[1].flooded, "another", 6); d.Allowed || d.Tier != limit.TierFallback {
		t.Errorf("%+v, the share is 5", d)
	}
	// The next outage has a number of its own, and the other rule settles again.
	m := fleet[1]
	before := m.shard.Outage().Number
	m.shard.Breaker.ForceOpen(errors.New("lost"))
	if now := m.shard.Outage(); now.Number == before || !m.shard.Settling(m.other.inOutage) {
		t.Errorf("outage %d after %d, the other rule settles: %v", now.Number, before, m.shard.Settling(m.other.inOutage))
	}
}
