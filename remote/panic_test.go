package remote

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// breaking is a hook of the program that does not return from its next command.
type breaking struct {
	noHook
	next atomic.Pointer[func()]
}

func (h *breaking) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if do := h.next.Swap(nil); do != nil {
			(*do)()
		}
		return next(ctx, cmd)
	}
}

// Law 7: if a hook of the client panics, or ends the goroutine, in the goroutine of a caller that makes a trip, as when
// net/http recovers from the panic, later calls are decided as before.
func TestLaw7TripsThatPanic(t *testing.T) {
	for name, do := range map[string]func(){"panics": func() { panic("a hook") }, "ends the goroutine": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			hook := &breaking{}
			client := server.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
			client.AddHook(hook)
			b, trips := newBatcher(t, client, func(o *Options) { o.Inline, o.InFlight = true, 1 })
			rule := newRule(t, limit.PerHour(1000), limit.GCRA())
			ask := func() error {
				_, err := b.Decide(t.Context(), Entry{Key: "k", Rule: rule, Cost: 1})
				return err
			}
			if err := ask(); err != nil {
				t.Fatal(err)
			}
			awaitState(t, b, 0, 0)
			for range 3 {
				hook.next.Store(&do)
				other := callOf(t.Context(), Entry{Key: "k", Rule: rule, Cost: 1}) // shares the trip
				other.began = localTime()
				other.deadline = other.began + b.opt.Deadline.Microseconds()
				b.mu.Lock()
				b.queue.add(other)
				b.mu.Unlock()
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					defer func() { _ = recover() }()
					t.Errorf("the hook did not break the call: %v", ask())
				}()
				<-ended
				if <-other.done; !errors.Is(other.err, errAbandoned) || !MayHaveRun(other.err) {
					t.Errorf("another call on the trip: %v", other.err)
				}
				for range 3 {
					if err := ask(); err != nil {
						t.Fatal(err)
					}
				}
			}
			if failed := trips.failures(); failed != 0 {
				t.Errorf("%d trips count as failures of Redis", failed)
			}
		})
	}
}

// If a function of the program that hears of a trip panics, the result of the trip is recorded once: a circuit breaker
// takes a second result for that of another trip.
func TestATripThatPanicsAtItsEndIsRecordedOnce(t *testing.T) {
	client := redistest.Shared(t).Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	results := 0
	opt := Options{Deadline: 10 * time.Second, MaxBatch: 128, MaxWork: 100_000, InFlight: 1, Queue: 10, Inline: true}
	b := NewBatcher(NewScript(client), opt, Hooks{
		Begin: func() (func(error), error) { return func(error) { results++ }, nil },
		Trip:  func(int, time.Duration, error) { panic("a logger") },
	})
	t.Cleanup(b.Close)
	rule := newRule(t, limit.PerHour(1000), limit.GCRA())
	for n := 1; n <= 3; n++ {
		func() {
			defer func() { _ = recover() }()
			reply, err := b.Decide(t.Context(), Entry{Key: redistest.Prefix() + "k", Rule: rule, Cost: 1})
			t.Errorf("the call did not panic: %+v, %v", reply, err)
		}()
		if results != n {
			t.Fatalf("%d results of %d trips", results, n)
		}
	}
}
