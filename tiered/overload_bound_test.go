package tiered_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// Law 11: under overload, keys that are at their limit get hardly more than that, although their requests are decided by
// Redis and without it at the same time. Four instances have uneven traffic, each key is asked for three times as often
// as its limit allows, and Redis is asked several times as often as it can decide.
func TestLaw11KeysAtTheirLimitUnderOverload(t *testing.T) { // not in parallel: it computes on all cores
	for name, test := range map[string]struct {
		algorithm limit.Algorithm
		own       float64 // the most that the algorithm lets through, divided by the limit
	}{
		"log":  {limit.SlidingLog(), 1},
		"gcra": {limit.GCRA(), 1.1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				most := mostUnderOverload(t, test.algorithm)
				median, worst := most[len(most)/2]/test.own, most[len(most)-1]/test.own
				t.Logf("worst window, divided by what the algorithm lets through: median key %.2f, worst key %.2f", median, worst)
				// Instances settle after three deadlines, in which Redis grants units that others grant without it.
				if median > 1.12 || worst > 1.22 {
					t.Error("that is too much")
				}
			})
		})
	}
}

// mostUnderOverload returns the most units of each key that were admitted in any window, divided by its limit, in
// ascending order.
func mostUnderOverload(t *testing.T, algorithm limit.Algorithm) (most []float64) {
	defer time.Sleep(time.Hour) // so that requests on their way arrive before the bubble ends
	redisServer := startStandin(t)
	defer redisServer.Close()
	const (
		deadline = 2 * time.Second
		window   = 50 * deadline
		keys     = 200
		rate     = 1900 // requests a second
		load     = 3    // by what the limits allow
		quota    = rate * int64(window/time.Second) / keys / load
	)
	server := &slowServer{perByte: 40 * time.Microsecond}
	var rules []*tiered.Rule
	for range 4 {
		l := server.open(t, redisServer, deadline)
		defer func() { _ = l.Close() }() // more units may be uncharged than Redis can take in time
		rule, err := l.Rule("r", limit.Per(quota, window).WithBurst(quota/10), tiered.Use(algorithm))
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, rule)
	}
	var mu sync.Mutex // guards the next two
	admitted := make([][]time.Duration, keys)
	without := 0
	ask := func(began time.Time, rule *tiered.Rule, key int) {
		d, err := rule.Allow(t.Context(), fmt.Sprint("key ", key))
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			t.Error(err)
		}
		if d.Degraded() {
			without++
		}
		if d.Allowed {
			admitted[key] = append(admitted[key], time.Since(began))
		}
	}
	var running sync.WaitGroup
	began, made := time.Now(), 0
	for time.Since(began) < 2*window {
		for ; float64(made) < rate*time.Since(began).Seconds(); made++ {
			rule, key := rules[instanceOf(rand.IntN(100))], rand.IntN(keys)
			running.Go(func() { ask(began, rule, key) })
		}
		time.Sleep(time.Millisecond)
	}
	running.Wait()
	t.Logf("limit %d; %d calls, %d of them decided without Redis", quota, made, without)
	if without < made/10 {
		t.Error("there was no overload")
	}
	for _, at := range admitted {
		slices.Sort(at)
		first, units := 0, 0
		for last := range at {
			for at[last]-at[first] >= window {
				first++
			}
			units = max(units, last-first+1)
		}
		most = append(most, float64(units)/float64(quota))
	}
	slices.Sort(most)
	return most
}

// instanceOf returns the instance that a request comes to, of which the given percentage of all requests is smaller: one
// has 70 % of the traffic, the others 15, 10 and 5 %.
func instanceOf(percent int) (instance int) {
	for _, upTo := range []int{70, 85, 95} {
		if percent >= upTo {
			instance++
		}
	}
	return instance
}
