//go:build unix

package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// traffic is many callers that ask two rules about many users, each a thousand times a second, until stopped. A
// user's keys, and so the commands for them, share a Cluster slot. The callers take the keys in turn. If each asked
// about a random one, it would take six times as many decisions until Redis has decided about all, which takes long
// on a busy machine.
type traffic struct {
	rules [2]*tiered.Rule
	asked atomic.Int64 // calls that have begun
	stop  chan struct{}
	done  sync.WaitGroup

	redis, fallback atomic.Int64 // decisions by tier

	mu    sync.Mutex // guards the maps
	users map[place]*account
	// failed counts other errors that callers got, by their text.
	failed map[string]int
}

// place is a key of traffic.
type place struct{ rule, user int }

func (p place) key() string { return fmt.Sprint("user", p.user) }

// account is what is known of the charges of one key.
type account struct {
	granted int64     // units granted by Redis
	unknown int64     // units asked for whose answer from Redis was lost
	decided time.Time // when Redis last decided
}

const (
	neverDenies    = 1 // index of the rule
	trafficUsers   = 150
	trafficCallers = 16
)

// startTraffic starts the callers on a limiter.
func startTraffic(t *testing.T, l *tiered.Limiter) *traffic {
	t.Helper()
	tr := &traffic{
		rules:  trafficRules(t, l),
		stop:   make(chan struct{}),
		users:  make(map[place]*account),
		failed: make(map[string]int),
	}
	for caller := range trafficCallers {
		tr.done.Go(func() {
			random := rand.New(rand.NewPCG(uint64(caller), 2))
			ticker := time.NewTicker(time.Millisecond)
			defer ticker.Stop()
			for {
				select {
				case <-tr.stop:
					return
				case <-ticker.C:
					turn := int(tr.asked.Add(1))
					tr.ask(place{turn % 2, turn / 2 % trafficUsers}, 1+random.Int64N(3))
				}
			}
		})
	}
	t.Cleanup(func() { tr.end() })
	return tr
}

// trafficRules returns a rule that soon denies, and one that never does, at the index neverDenies.
func trafficRules(t *testing.T, l *tiered.Limiter) [2]*tiered.Rule {
	t.Helper()
	return [2]*tiered.Rule{
		newRule(t, l, "log", limit.PerDay(300), tiered.Use(limit.SlidingLog())),
		newRule(t, l, "counter", limit.PerDay(1_000_000), tiered.Use(limit.SlidingCounter(limit.DefaultBuckets, limit.Strict))),
	}
}

func (tr *traffic) ask(p place, cost int64) {
	d, err := tr.rules[p.rule].AllowN(context.Background(), p.key(), cost)
	tr.mu.Lock()
	defer tr.mu.Unlock()
	a := tr.users[p]
	if a == nil {
		a = new(account)
		tr.users[p] = a
	}
	switch {
	case err != nil:
		tr.failed[err.Error()]++
	case d.Tier == limit.TierRedis:
		tr.redis.Add(1)
		a.granted += d.Granted
		a.decided = time.Now()
	case d.Degraded():
		tr.fallback.Add(1)
		a.unknown += cost
	}
}

// awaitRedis waits until Redis has made the given number of further decisions.
func (tr *traffic) awaitRedis(t *testing.T, more int64) {
	t.Helper()
	from := tr.redis.Load()
	redistest.Eventually(t, "Redis decides", func() bool { return tr.redis.Load() >= from+more })
}

// awaitAll waits until Redis has decided about every key since a moment. Once the limiter has noticed that Redis
// has lost data, its own share also denies until a window is over, and Redis is not asked. From then on, only the
// keys of the rule that never denies count.
func (tr *traffic) awaitAll(t *testing.T, l *tiered.Limiter, since time.Time) {
	t.Helper()
	redistest.Eventually(t, "Redis decides about all keys", func() bool {
		noticed := l.Stats().MemoryLosses > 0
		tr.mu.Lock()
		defer tr.mu.Unlock()
		for p, a := range tr.users {
			if !a.decided.After(since) && (p.rule == neverDenies || !noticed) {
				return false
			}
		}
		return true
	})
}

// end stops the callers.
func (tr *traffic) end() {
	select {
	case <-tr.stop:
	default:
		close(tr.stop)
	}
	tr.done.Wait()
}

// granted returns the number of units that Redis has granted.
func (tr *traffic) granted() (units int64) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for _, a := range tr.users {
		units += a.granted
	}
	return units
}

// balance compares the units granted to callers with the units charged in Redis, as an observer finds them. It
// returns how many of the granted units Redis has lost.
//
// If again is set, Redis was found to have lost part of its memory, and the grants were charged again. A unit that
// Redis had not lost may then have been charged twice, but not more often.
func (tr *traffic) balance(t *testing.T, observer observer, again bool) (lost, granted int64) {
	t.Helper()
	tr.end()
	for p, a := range tr.users {
		inRedis := observer.charged(t, tr.rules[p.rule], p.key())
		most := a.granted + a.unknown
		if again {
			most *= 2
		}
		if inRedis > most {
			t.Errorf("%v: %d units charged in Redis, %d granted by it, %d unanswered: charged twice", p, inRedis, a.granted, a.unknown)
		}
		lost += max(0, a.granted-inRedis)
	}
	return lost, tr.granted()
}
