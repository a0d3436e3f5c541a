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

func (r *renewed) DecideApart(entries []remote.Entry, within time.Duration) ([]remote.Reply, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var keys []string
	replies, err := r.Decider.DecideApart(entries, within)
	for i, e := range entries {
		if keys = append(keys, e.Key); err == nil && e.Key == r.fails {
			replies[i].Err, r.fails = remote.ErrNoAnswer, ""
		}
	}
	slices.Sort(keys)
	r.times = append(r.times, fmt.Sprint(time.Since(r.began).Round(10*time.Millisecond), keys))
	return replies, err
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
