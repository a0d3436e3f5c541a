package tiered

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/remote"
)

// renewed is a Decider that records which keys are renewed, and when. The first answer about the key fails gets
// lost.
type renewed struct {
	outage.Decider
	mu    sync.Mutex
	began time.Time
	fails string
	times []string // each with the keys that were renewed then
}

func (r *renewed) DecideApart(entries []remote.Entry, within time.Duration) []remote.Reply {
	r.mu.Lock()
	defer r.mu.Unlock()
	var keys []string
	replies := r.Decider.DecideApart(entries, within)
	for i, e := range entries {
		if keys = append(keys, e.Key); replies[i].Err == nil && e.Key == r.fails {
			replies[i].Err, r.fails = remote.ErrNoAnswer, ""
		}
	}
	slices.Sort(keys)
	r.times = append(r.times, fmt.Sprint(time.Since(r.began).Round(10*time.Millisecond), keys))
	return replies
}

// Slots are renewed three times per TTL, at the same times whatever wakes the keeper meanwhile. After a renewal has
// failed, only the slots that were not renewed are renewed again, after a twelfth of the TTL.
func TestWhenSlotsAreRenewed(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		l := newLimiterOn(t, bubble.Client(t), redistest.Prefix(), Deadline(50*time.Millisecond))
		way := &renewed{Decider: l.shard.Decider, began: time.Now(), fails: "b"}
		l.shard.Decider = way
		jobs := newRule(t, l, "jobs", limit.Concurrent(3), SlotTTL(12*time.Second))
		time.Sleep(500 * time.Millisecond)
		mustAcquire(t, jobs, "a", 1)
		mustAcquire(t, jobs, "b", 1)
		time.Sleep(3 * time.Second)
		l.slots.wake.Send()
		time.Sleep(6 * time.Second)
		way.mu.Lock()
		defer way.mu.Unlock()
		if want := []string{"4s [a b]", "5s [b]", "9s [a b]"}; !slices.Equal(way.times, want) {
			t.Errorf("renewed after %v, want %v", way.times, want)
		}
	})
}

// If a renewal fails, the next comes after a deadline if that is longer than a twelfth of the TTL, but no later than it
// would have come otherwise.
func TestWhenFailedRenewalsAreRepeated(t *testing.T) {
	for deadline, want := range map[time.Duration][]string{
		200 * time.Millisecond: {"400ms [a]", "600ms [a]"},
		500 * time.Millisecond: {"400ms [a]", "800ms [a]"},
	} {
		redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
			l := newLimiterOn(t, bubble.Client(t), redistest.Prefix(), Deadline(deadline))
			way := &renewed{Decider: l.shard.Decider, began: time.Now(), fails: "a"}
			l.shard.Decider = way
			jobs := newRule(t, l, "jobs", limit.Concurrent(3), SlotTTL(1200*time.Millisecond))
			time.Sleep(time.Millisecond) // the keeper's first round would renew what is acquired before it
			mustAcquire(t, jobs, "a", 1)
			time.Sleep(900 * time.Millisecond)
			way.mu.Lock()
			defer way.mu.Unlock()
			if !slices.Equal(way.times, want) {
				t.Errorf("with a deadline of %v renewed after %v, want %v", deadline, way.times, want)
			}
		})
	}
}

// lossy is a Decider whose answers take a while. It loses the answers to the first statements about a key.
type lossy struct {
	outage.Decider
	takes time.Duration
	key   string
	loses int
	asked int
}

func (w *lossy) DecideApart(entries []remote.Entry, within time.Duration) []remote.Reply {
	replies := w.Decider.DecideApart(entries, within)
	time.Sleep(w.takes)
	for i, e := range entries {
		if e.Key != w.key {
			continue
		}
		if w.asked++; replies[i].Err == nil && w.asked <= w.loses {
			replies[i].Err = remote.ErrNoAnswer
		}
	}
	return replies
}

// Close tries to release slots as long as it has released any in the last three deadlines.
func TestHowLongCloseReleasesSlots(t *testing.T) {
	const deadline = 50 * time.Millisecond
	for what, c := range map[string]struct {
		way   lossy
		asked int // times
		left  int // keys
		takes time.Duration
	}{
		"an answer is lost":             {lossy{loses: 1}, 2, 0, deadline},
		"all answers are lost":          {lossy{loses: 100}, 3, 1, 3 * deadline},
		"others are released meanwhile": {lossy{loses: 1, takes: 2 * deadline}, 2, 0, 5 * deadline},
	} {
		redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
			l := newLimiterOn(t, bubble.Client(t), redistest.Prefix(), Deadline(deadline))
			l.slots.closed.Store(true) // no keeper sends statements
			jobs := newRule(t, l, "jobs", limit.Concurrent(1), SlotTTL(10*time.Minute))
			mustAcquire(t, jobs, "a", 1)
			mustAcquire(t, jobs, "b", 1)
			way := c.way
			way.Decider, way.key = l.shard.Decider, "b"
			l.shard.Decider = &way
			l.slots.table.EndAll(l.now())
			began := time.Now()
			l.reportSlotsEnded()
			took := time.Since(began).Round(5 * time.Millisecond)
			if keys := l.slots.table.Keys(); way.asked != c.asked || keys != c.left || took != c.takes {
				t.Errorf("%s: asked %d times about a key in %v, and %d keys are left; want %d, %v and %d", what, way.asked, took, keys, c.asked, c.takes, c.left)
			}
			l.shard.Decider = way.Decider
		})
	}
}
