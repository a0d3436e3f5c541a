package remote

import (
	"testing"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// repeated feeds d the given number of answers, one after another, each of which takes took µs. It returns the time
// after the last one.
func (d *distance) repeated(now, took int64, answers int) (after int64) {
	for range answers {
		now += took
		d.answered(now, took)
	}
	return now
}

func TestDistance(t *testing.T) {
	var d distance
	now := d.repeated(0, 400, knownAfter-1)
	if d.isFar() {
		t.Error("little is known of a server, and it counts as far away")
	}
	now = d.repeated(now, 400, 1)
	if !d.isFar() {
		t.Error("a server that takes 400 µs, whenever it is asked, is not far away")
	}
	if now = d.repeated(now, 900, 200); d.isFar() {
		t.Error("it is busy when its answers take 900 µs, and counts as far away")
	}
	now = d.repeated(now, 410, 200)
	if d.answered(now, 1_000_000); !d.isFar() {
		t.Error("one answer that took long makes it busy")
	}
	if now = d.repeated(now, 60, 1); d.isFar() {
		t.Error("a server that has answered within 60 µs is far away")
	}
	now = d.repeated(now, 400, int(distancePeriod/400))
	if d.isFar() {
		t.Error("how fast it has answered is forgotten within a period")
	}
	if d.repeated(now, 400, int(2*distancePeriod/400)); !d.isFar() {
		t.Error("after two periods it is known still")
	}
}

// Calls that arrive while a batch is in flight do not wait for its answer if most of that time is network latency.
// If Redis is near or busy, these calls share the next batch.
func TestCallsRarelyWaitForAFarRedis(t *testing.T) {
	rule := newRule(t, limit.PerHour(10), limit.GCRA())
	for name, tc := range map[string]struct {
		answers []int64
		lead    bool
	}{
		"far":  {[]int64{500, 500, 500, 500}, true},
		"near": {[]int64{90, 90, 90, 90}, false},
		"busy": {[]int64{500, 2000, 2000, 2000}, false},
	} {
		b, _ := newBatcher(t, redistest.Shared(t).Client(t))
		b.opt.Inline = true
		for i, took := range tc.answers {
			b.distance.repeated(int64(i)*1000, took, 50)
		}
		for n := range b.opt.InFlight {
			c := waitingCall(rule, 5000*ms)
			lead, _, err := b.enqueue(c)
			if err != nil {
				t.Fatal(err)
			}
			if lead {
				b.load(c, localTime())
			}
			if want := n == 0 || tc.lead; lead != want {
				t.Errorf("%s: with %d batches under way a call makes another: %v, want %v", name, n, lead, want)
			}
		}
		if lead, _, _ := b.enqueue(waitingCall(rule, 5000*ms)); lead {
			t.Errorf("%s: there are more than %d batches under way", name, b.opt.InFlight)
		}
		b.mu.Lock()
		b.queue.take(nil)
		b.running.Add(-b.inFlight)
		b.trips, b.inFlight = nil, 0
		b.mu.Unlock()
	}
}
