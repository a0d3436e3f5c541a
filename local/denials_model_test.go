package local

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/internal/model"
	"github.com/tierlimit/tierlimit/limit"
)

// denialLife is long enough for some of a history's denials to be used, and short enough for others to end.
const denialLife = int64(3 * time.Second)

// remembered is a key of a history: its state in Redis, and the time when this process last sent a request that
// Redis denied.
type remembered struct {
	name     string
	l        limit.Limit
	a        limit.Algorithm
	redis    model.Model
	last     model.Outcome
	lastSent int64
	capacity int64 // the largest cost that fits
}

// world is a history of this process and others on one Redis. True time is in ns. Redis sees its whole µs, and this
// process has a clock that started at another time.
type world struct {
	denials *Denials
	keys    []*remembered
	now     int64
	started int64 // when this process's clock started, in true time
	atOnce  bool  // requests may take no time at all, as on a virtual clock
}

func (w *world) local() int64 { return w.now - w.started }

func (w *world) redisTime() int64 { return w.now / 1000 }

func (w *world) hash(k *remembered) uint64 { return testHasher.Hash(k.name) }

// Law 2: whatever this process denies by itself, Redis would have denied at that instant, and until the end of the
// wait that the process answers. Histories are random: they have several keys, all algorithms, other processes that
// take units, and messages that take their time.
func TestNoDenialIsInvented(t *testing.T) {
	var hits int
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		defer w.denials.Close()
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			k := rapid.SampledFrom(w.keys).Draw(t, "key")
			w.now += drawPause(t, k)
			cost := drawCost(t, k)
			if rapid.IntRange(0, 3).Draw(t, "who") == 0 {
				k.redis.Decide(w.redisTime(), cost) // another process
				continue
			}
			if d, denied := w.denials.Lookup(w.hash(k), w.local(), cost); denied {
				hits++
				w.checkDenial(t, k, cost, d)
				continue
			}
			w.ask(t, k, cost)
		}
	})
	if hits == 0 {
		t.Error("not one denial was remembered: this test shows nothing")
	}
}

func (w *world) checkDenial(t *rapid.T, k *remembered, cost int64, d Denial) {
	if k.redis.Clone().Decide(w.redisTime(), cost).Allowed {
		t.Fatalf("%v under %v: %d denied, which Redis would grant", k.l, k.a, cost)
	}
	if d.RetryAfter < 1 {
		t.Fatalf("%v under %v: denied, retry after %v", k.l, k.a, d.RetryAfter)
	}
	if k.redis.Clone().Decide((w.now+int64(d.RetryAfter)-1)/1000, cost).Allowed {
		t.Fatalf("%v under %v: told to retry %d after %v, Redis would grant it earlier", k.l, k.a, cost, d.RetryAfter)
	}
	if w.local() >= k.lastSent+denialLife {
		t.Fatalf("denied %v after sending", time.Duration(w.local()-k.lastSent))
	}
}

// ask sends a request to Redis and remembers the answer. Meanwhile time passes, and other processes may send
// requests.
func (w *world) ask(t *rapid.T, k *remembered, cost int64) {
	sent := w.local()
	w.now += w.drawDelay(t)
	if rapid.IntRange(0, 3).Draw(t, "overtaken") == 0 {
		k.redis.Decide(w.redisTime(), 1)
	}
	k.last = k.redis.Decide(w.redisTime(), cost)
	w.now += w.drawDelay(t)
	if k.last.Allowed {
		return
	}
	k.lastSent = sent
	wait := time.Duration(k.last.RetryAfter) * time.Microsecond
	w.denials.Remember(w.hash(k), sent, Denial{
		Cost:       cost,
		RetryAfter: wait,
		NextAfter:  time.Duration(k.last.NextAfter) * time.Microsecond,
		ResetAfter: time.Duration(k.last.ResetAfter) * time.Microsecond,
		Remaining:  k.last.Remaining,
	})
	// The denial is known until its wait or its life ends, except for the microsecond that rounding may take.
	ends := min(sent+int64(wait), sent+denialLife) - 1000
	if _, denied := w.denials.Lookup(w.hash(k), w.local(), cost); !denied && w.local() < ends {
		t.Fatalf("%v under %v: a denial of %d for %v is not remembered", k.l, k.a, cost, wait)
	}
}

func drawWorld(t *rapid.T) *world {
	denials, err := NewDenials(100, time.Duration(denialLife), true)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{denials: denials, now: 1_790_123_456_789_012_345, atOnce: rapid.Bool().Draw(t, "at once")}
	// If messages take no time, whole microseconds must begin at the same time on both clocks. Otherwise a message
	// takes at least a microsecond.
	w.started = w.now - rapid.Int64Range(0, 10*minute).Draw(t, "started")
	if w.atOnce {
		w.started -= w.started % 1000
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "keys") {
		k := &remembered{name: fmt.Sprint("key ", i)}
		k.a = rapid.SampledFrom([]limit.Algorithm{
			limit.SlidingLog(), limit.GCRA(), limit.FixedWindow(),
			limit.SlidingCounter(1, limit.Estimate), limit.SlidingCounter(16, limit.Strict), limit.SlidingCounter(7, limit.Estimate),
		}).Draw(t, "algorithm")
		window := rapid.SampledFrom([]int64{1000, 2_000_000, 10_000_000, 3_600_000_000}).Draw(t, "window")
		k.l = limit.Per(rapid.Int64Range(1, 12).Draw(t, "quota"), time.Duration(window)*time.Microsecond)
		if k.a == limit.GCRA() {
			k.l = k.l.WithBurst(k.l.Quota())
		}
		if k.redis, err = model.New(k.l, k.a); err != nil {
			t.Fatal(err)
		}
		k.capacity = k.a.Capacity(k.l)
		w.keys = append(w.keys, k)
	}
	return w
}

func (w *world) drawDelay(t *rapid.T) int64 {
	if w.atOnce && rapid.Bool().Draw(t, "no time") {
		return 0
	}
	return rapid.OneOf(rapid.Int64Range(1000, 5000), rapid.Int64Range(1000, 2*second)).Draw(t, "delay")
}

// drawPause draws the time until a request: often none, or until about the time when something changes.
func drawPause(t *rapid.T, k *remembered) int64 {
	moment := rapid.SampledFrom([]int64{
		0, 0,
		1000 * k.last.RetryAfter,
		1000 * k.last.NextAfter,
		int64(k.l.Window()) / 10,
		int64(k.l.Window()),
		denialLife,
	}).Draw(t, "moment")
	return max(0, moment+rapid.Int64Range(-1500, 1500).Draw(t, "neighbour"))
}

// drawCost prefers costs around the largest that fits.
func drawCost(t *rapid.T, k *remembered) int64 {
	cost := rapid.SampledFrom([]int64{1, k.last.Remaining, k.last.Remaining + 1, k.capacity}).Draw(t, "cost")
	return min(max(1, cost), k.capacity)
}
