package remote

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Law 4: an entry that expires is sent once more, but not again and again until its time is over. The error says
// that nothing was charged.
func TestLaw4ExpiredEntriesAreResentOnce(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	var b *Batcher
	trips, forward := 0, false
	hooks := Hooks{
		Begin: func() (func(error), error) {
			trips++
			if c := &b.script.only.clocks.only; forward {
				known := *c.Load()
				known.ahead -= 3600 * 1_000_000
				c.Store(&known) // as if Redis's clock had gone forward by an hour
			}
			return func(error) {}, nil
		},
		Trip: func(int, time.Duration, error) {},
	}
	b = NewBatcher(NewScript(client), Options{Deadline: 2 * time.Second, MaxBatch: 8, MaxWork: 100, InFlight: 1, Queue: 8, Inline: true}, hooks)
	t.Cleanup(b.Close)
	rule := newRule(t, limit.PerHour(10), limit.SlidingLog())
	key := redistest.Prefix() + "again"
	mustDecide(t, b, Entry{Key: key, Rule: rule, Cost: 1})
	hurried, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for _, c := range []struct {
		name string
		ctx  context.Context
		want error
	}{
		{"with all of the time", t.Context(), errLate},
		{"with less time than others", DecideBy(t.Context(), time.Now().Add(time.Second)), ErrDecideBy},
		{"whose context ends early", hurried, context.DeadlineExceeded},
	} {
		trips, forward = 0, true
		_, err := b.Decide(c.ctx, Entry{Key: key, Rule: rule, Cost: 1})
		if trips != 2 || !errors.Is(err, c.want) || c.want != context.DeadlineExceeded && MayHaveRun(err) {
			t.Errorf("a call %s: %v after %d trips, want %v after 2", c.name, err, trips, c.want)
		}
	}
	forward = false
	if r := mustDecide(t, b, Entry{Key: key, Rule: rule, Cost: 1}); r.Remaining != 8 {
		t.Errorf("%d remain, want 8", r.Remaining)
	}
}

// Law 7: a call that is sent once more while its caller is about to lead a trip has at most one place. A second
// place would mean one signal too many: the caller would take one signal for its answer, and never use a place.
func TestLaw7WhoIsResentIsNotElectedTwice(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	var b *Batcher
	forward := false
	hooks := Hooks{
		Begin: func() (func(error), error) {
			if c := &b.script.only.clocks.only; forward {
				known := *c.Load()
				known.ahead -= 3600 * 1_000_000
				c.Store(&known) // as if Redis's clock had gone forward by an hour
			}
			forward = false
			return func(error) {}, nil
		},
		Trip: func(int, time.Duration, error) {
			b.mu.Lock()
			b.distance = distance{least: farAway, usual: farAway, known: knownAfter, since: localTime()} // a further trip may start
			b.mu.Unlock()
		},
	}
	b = NewBatcher(NewScript(client), Options{Deadline: 10 * time.Second, MaxBatch: 8, MaxWork: 100, InFlight: 4, Queue: 8, Inline: true}, hooks)
	rule := newRule(t, limit.PerHour(10), limit.SlidingLog())
	mustDecide(t, b, Entry{Key: redistest.Prefix() + "lead", Rule: rule, Cost: 1})
	forward = true
	c := waitingCall(rule, b.opt.Deadline.Microseconds())
	b.mu.Lock()
	b.queue.add(c)
	b.startNext() // the caller is elected, but does not run yet
	b.start()
	b.mu.Unlock()
	b.lead(nil, false) // another trip carries the call, which expires on it
	if !c.resent {
		t.Fatal("it has not expired")
	}
	err := b.await(c)
	if err != nil || len(c.replies) != 1 {
		t.Errorf("%d replies, %v", len(c.replies), err)
	}
	awaitState(t, b, 0, 0)
	b.Close()
	if n := len(c.done); n > 0 {
		t.Errorf("%d signals are left", n)
	}
}
