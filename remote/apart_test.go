package remote

import (
	"errors"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// Law 7: a trip apart is made even while no place is left for a trip, and no room for another call. Its entries fail
// separately.
func TestLaw7TripsApartWaitForNoOthers(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	b, _ := newBatcher(t, client, func(o *Options) { o.InFlight, o.Queue = 1, 0 })
	rule := newRule(t, limit.PerHour(1000), limit.GCRA())
	b.mu.Lock()
	b.start() // takes the only place
	b.mu.Unlock()
	if _, err := b.Decide(t.Context(), Entry{Key: "k", Rule: rule, Cost: 1}); !errors.Is(err, ErrNoRoom) {
		t.Fatalf("a call: %v, want %v", err, ErrNoRoom)
	}
	damaged := Entry{Key: "damaged", Rule: rule, Cost: 1}
	client.Set(t.Context(), damaged.redisKey(), "damaged", time.Minute)
	replies, err := b.DecideApart([]Entry{{Key: "k", Rule: rule, Cost: 1}, damaged, {Key: "l", Rule: rule, Operation: lua.Take, Cost: 2}}, time.Second)
	if err != nil || replies[0].Status != Allowed || replies[2].Status != Allowed || replies[2].Granted != 2 {
		t.Errorf("%+v, %v", replies, err)
	}
	if !errors.Is(replies[1].Err, ErrUnreadable) || replies[0].Err != nil || replies[2].Err != nil {
		t.Errorf("the errors are %v, %v and %v", replies[0].Err, replies[1].Err, replies[2].Err)
	}
	b.mu.Lock()
	b.inFlight--
	b.mu.Unlock()
	b.running.Done()
	b.Close()
	if _, err := b.DecideApart([]Entry{{Key: "k", Rule: rule, Cost: 1}}, time.Second); !errors.Is(err, limit.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// Law 4: an entry of a trip apart that reaches Redis after its time is not carried out, and its reply says so.
func TestLaw4TripsApartAreNotLate(t *testing.T) {
	server := redistest.Start(t)
	b, _ := newBatcher(t, server.Client(t), func(o *Options) {})
	rule := newRule(t, limit.PerHour(1000), limit.GCRA())
	ask := func(within time.Duration) ([]Reply, error) {
		return b.DecideApart([]Entry{{Key: "k", Rule: rule, Cost: 1}}, within)
	}
	if _, err := ask(time.Second); err != nil { // from now on Redis's clock is known
		t.Fatal(err)
	}
	server.Pause()
	_, err := ask(20 * time.Millisecond)
	server.Resume()
	if !errors.Is(err, ErrNoAnswer) {
		t.Errorf("Redis is paused: %v", err)
	}
	for _, want := range []int64{998, 997} {
		if replies, err := ask(10 * time.Second); err != nil || replies[0].Remaining != want {
			t.Errorf("%+v, %v: want %d units to remain, without a charge of the late entry", replies, err, want)
		}
	}
}
