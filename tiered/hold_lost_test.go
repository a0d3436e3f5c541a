package tiered

import (
	"errors"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Law 12: settlements that wait for a lost master of a Cluster do not hold up those for other masters,
// however many they are, and Close makes the latter.
func TestLaw12SettlementsDoNotWaitForALostMaster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2, "--cluster-require-full-coverage", "no")
	client := cluster.Client(t)
	for what, makes := range map[string]func(*Limiter){
		"in the background": func(l *Limiter) {
			if !l.sendWaiting(settledAtOnce) {
				t.Error("nothing waits for the lost master")
			}
		},
		"Close": func(l *Limiter) { _ = l.Close() }, // it reports that the fleet could not be left
	} {
		t.Run(what, func(t *testing.T) {
			prefix := redistest.Prefix()
			l, others := newLimiterOn(t, client, prefix), newLimiterOn(t, client, prefix)
			redistest.Eventually(t, "Redis decides", func() bool { return l.State() == Healthy && others.State() == Healthy })
			r := newRule(t, l, "r", limit.PerHour(1000), Use(limit.SlidingLog()))
			other := newRule(t, others, "r", limit.PerHour(1000), Use(limit.SlidingLog()))
			lost, kept := keysOf(t, cluster.Nodes()[0], l)
			var waiting []settlement
			for i := range 3 * settledAtOnce {
				waiting = append(waiting, settlement{rule: r, key: mustHold(t, r, lost[i%len(lost)], 1, time.Hour).key, held: 1})
			}
			waiting = append(waiting, settlement{rule: r, key: mustHold(t, r, kept[0], 50, time.Hour).key, held: 50, used: 30})
			cluster.Nodes()[0].Pause()
			defer cluster.Nodes()[0].Resume()
			l.shardOf(&waiting[0].key).Breaker.ForceOpen(errors.New("the master is lost"))

			l.holds.mu.Lock()
			l.holds.waiting = waiting
			l.holds.mu.Unlock()
			r.metrics.holds.waiting.Add(int64(len(waiting)))
			makes(l)
			if d := mustAllow(t, other, kept[0], 1); d.Remaining != 1000-30-1 {
				t.Errorf("30 of 50 units were used, and 1 now: %+v", d)
			}
		})
	}
}
