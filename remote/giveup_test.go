package remote

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Law 7: a trip whose client does not honor the deadline gives its place to the next trip, and takes no place after
// the client has returned. It is reported once, although it ends twice.
func TestLaw7TripsThatAreGivenUpPassTheirPlaceOn(t *testing.T) {
	t.Parallel()
	const within, calls = 100 * time.Millisecond, 3
	server := redistest.Start(t)
	client := server.Client(t, func(o *redis.Options) {
		o.ContextTimeoutEnabled = false
		o.ReadTimeout = 20 * time.Second
	})
	var begun, ended, told atomic.Int64
	hooks := Hooks{
		Begin: func() (func(error), error) {
			begun.Add(1)
			return func(error) { ended.Add(1) }, nil
		},
		Trip: func(int, time.Duration, error) { told.Add(1) },
	}
	b := NewBatcher(NewScript(client), Options{Deadline: within, MaxBatch: 8, MaxWork: 100, InFlight: 1, Queue: 8}, hooks)
	t.Cleanup(b.Close)
	rule := newRule(t, limit.PerHour(1000), limit.GCRA())
	ask := func() error {
		_, err := b.Decide(t.Context(), Entry{Key: "k", Rule: rule, Cost: 1})
		return err
	}
	redistest.Eventually(t, "Redis decides", func() bool { return ask() == nil })
	awaitState(t, b, 0, 0)
	begun.Store(0)
	ended.Store(0)
	told.Store(0)
	server.Pause()
	for i := range int64(calls) {
		if err := ask(); !errors.Is(err, ErrNoAnswer) {
			t.Fatal(err)
		}
		redistest.Eventually(t, "the trip is given up", func() bool { return told.Load() == i+1 })
		if n := begun.Load(); n != i+1 {
			t.Fatalf("%d trips for %d calls, with a place for one that is under way", n, i+1)
		}
	}
	b.mu.Lock()
	stuck := b.stuck
	b.mu.Unlock()
	if stuck != calls {
		t.Errorf("%d trips hang in the client, want %d", stuck, calls)
	}
	server.Resume()
	redistest.Eventually(t, "no trip hangs in the client any more", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.stuck == 0
	})
	redistest.Eventually(t, "Redis decides again", func() bool { return ask() == nil })
	awaitState(t, b, 0, 0)
	if begun.Load() != ended.Load() || begun.Load() != told.Load() {
		t.Errorf("%d trips have begun, %d have ended, %d are told", begun.Load(), ended.Load(), told.Load())
	}
}

// Law 7: a call that boards a trip just after it has started has time left when the trip is given up. The batcher
// does not forget the call with the trip.
func TestLaw7WhoHasTimeLeftWhenATripIsGivenUpIsAnswered(t *testing.T) {
	t.Parallel()
	const within, more = 100 * time.Millisecond, 50 * time.Millisecond
	server := redistest.Start(t)
	client := server.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled, o.ReadTimeout = false, 2*time.Second })
	b, _ := newBatcher(t, client, deadline(within))
	rule := newRule(t, limit.PerHour(1000), limit.GCRA())
	decide(t, NewScript(client), "k", rule, 0, 1)
	server.Pause()
	c := callOf(t.Context(), Entry{Key: "k", Rule: rule, Cost: 1})
	c.began = localTime()
	c.deadline = c.began + (within + more).Microseconds() // the trip's own deadline is "within" from now
	b.mu.Lock()
	b.queue.add(c)
	b.start()
	b.mu.Unlock()
	go b.lead(nil, false)
	select {
	case <-c.done:
		if !errors.Is(c.err, ErrNoAnswer) {
			t.Error(c.err)
		}
	case <-time.After(20 * time.Second):
		t.Error("not answered within 20 s")
	}
}

// Law 7: a caller does not wait beyond its deadline if it has waited before it leads a trip, or if it lets another
// lead because it has little time left.
func TestLaw7LeadersKeepTheirDeadlines(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled, o.ReadTimeout = true, time.Minute })
	b, _ := newBatcher(t, client, deadline(4*time.Second))
	rule := newRule(t, limit.PerHour(10), limit.GCRA())
	mustDecide(t, b, Entry{Key: "k", Rule: rule, Cost: 1})
	awaitState(t, b, 0, 0)
	server.Pause()
	defer server.Resume()
	for _, left := range []int64{2100 * ms, 200 * ms} { // more than half of the deadline, and less
		began := time.Now()
		c := waitingCall(rule, left)
		if lead, _, err := b.enqueue(c); !lead || err != nil {
			t.Fatalf("it does not lead: %v", err)
		}
		b.lead(c, false)
		<-c.done
		if took := time.Since(began) - microseconds(left); !errors.Is(c.err, ErrNoAnswer) || took > time.Second {
			t.Errorf("%v after its deadline: %v", took, c.err)
		}
		b.mu.Lock()
		b.failed = false
		b.mu.Unlock()
	}
}

// Law 7: calls whose time is over make room for others, even if no trip starts.
func TestLaw7WhoHasLeftTakesNoRoom(t *testing.T) {
	client, _ := redistest.Embedded(t)
	b, _ := newBatcher(t, client, deadline(20*time.Millisecond), func(o *Options) { o.Queue = 1 })
	rule := newRule(t, limit.PerHour(10), limit.GCRA())
	b.mu.Lock()
	b.inFlight, b.slow = 1, true // a trip that does not end
	b.mu.Unlock()
	for range 3 {
		if _, err := b.Decide(t.Context(), Entry{Key: "k", Rule: rule, Cost: 1}); errors.Is(err, ErrNoRoom) || !errors.Is(err, ErrNoAnswer) {
			t.Error(err)
		}
		awaitState(t, b, 1, 0)
	}
	b.mu.Lock()
	b.inFlight = 0
	b.mu.Unlock()
}

// Law 7: a caller is about to lead a trip while another trip carries its call. It waits for that trip no longer
// than until its own deadline, which is before the trip's.
func TestLaw7LeadersWhoseCallIsOnAnotherTripKeepTheirDeadlines(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled, o.ReadTimeout = true, time.Minute })
	rule := newRule(t, limit.PerHour(10), limit.GCRA())
	decide(t, NewScript(client), "k", rule, 0, 1)
	server.Pause()
	defer server.Resume()
	for _, left := range []int64{2100 * ms, 200 * ms} { // more than half of the deadline, and less
		b, _ := newBatcher(t, client, deadline(4*time.Second))
		began := time.Now()
		c := waitingCall(rule, left)
		if lead, _, err := b.enqueue(c); !lead || err != nil {
			t.Fatalf("it does not lead: %v", err)
		}
		b.mu.Lock()
		b.start()
		b.mu.Unlock()
		go b.lead(nil, false)
		redistest.Eventually(t, "another trip carries its call", func() bool {
			state := c.state.Load() // on a busy machine, the call's time may be over already
			return state == callSent || state == callClaimed
		})
		b.lead(c, false)
		<-c.done
		if took := time.Since(began) - microseconds(left); !errors.Is(c.err, ErrNoAnswer) || took > time.Second {
			t.Errorf("%v after its deadline: %v", took, c.err)
		}
	}
}

// Law 7: calls whose deadlines pass soon after a trip was loaded end without waiting for the next check of
// contexts.
func TestLaw7TheReaperDoesNotLoseSightOfATripBeingLoaded(t *testing.T) {
	client, _ := redistest.Embedded(t)
	b, _ := newBatcher(t, client)
	b.mu.Lock()
	b.trips = []*trip{{}}
	b.mu.Unlock()
	b.reap()
	b.mu.Lock()
	defer b.mu.Unlock()
	if latest := b.reaped + reapEvery.Microseconds(); b.reapAt == 0 || b.reapAt > latest {
		t.Errorf("its next round is %d µs late", b.reapAt-latest)
	}
	b.trips = nil
}

// A call counts as sent also if its caller ceases to lead another trip at the moment the call boards one. Otherwise
// the caller would be told that the call was not sent.
func TestCallsAreSentWhileTheirCallersCeaseToLead(t *testing.T) {
	c := &call{}
	for range 200_000 {
		c.state.Store(callLeading)
		var follows sync.WaitGroup
		follows.Go(func() { c.follow() })
		c.send()
		follows.Wait()
		if state := c.state.Load(); state != callSent {
			t.Fatalf("state %d after it was sent", state)
		}
	}
}

// A client that never returns ties up no more than maxStuck goroutines. Beyond that, a trip that is given up keeps its
// place until its client returns.
func TestGoroutinesLeftBehindAreBounded(t *testing.T) {
	b, _ := newBatcher(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})) // never contacted
	for _, tc := range []struct{ stuck, inFlight, stuckAfter int }{
		{maxStuck - 1, 0, maxStuck},
		{maxStuck, 1, maxStuck},
	} {
		one := &trip{flight: flight{done: func(error) {}}}
		b.mu.Lock()
		b.stuck, b.inFlight, b.trips = tc.stuck, 1, []*trip{one}
		b.giveUp(one, localTime())
		if b.stuck != tc.stuckAfter || b.inFlight != tc.inFlight {
			t.Errorf("with %d left behind before: now %d, and %d in flight, want %+v", tc.stuck, b.stuck, b.inFlight, tc)
		}
		if !b.failed || !b.slow {
			t.Errorf("a trip that was given up counts as failed: %v, Redis as slow: %v", b.failed, b.slow)
		}
		b.failed, b.slow = false, false
		b.mu.Unlock()
		if b.endTrip(one) {
			t.Error("a trip that was given up lands")
		}
		b.mu.Lock()
		if b.stuck != tc.stuck {
			t.Errorf("%d are left behind after one of them has returned, want %d", b.stuck, tc.stuck)
		}
		b.mu.Unlock()
	}
}
