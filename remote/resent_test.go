package remote

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Law 4: an entry that expires is sent once more, and not again and again until its time is over. The error
// says that it charged nothing.
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
