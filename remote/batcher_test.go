package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// tripLog records what the hooks were told.
type tripLog struct {
	mu     sync.Mutex
	sizes  []int
	failed []error
}

func (l *tripLog) hooks() Hooks {
	return Hooks{
		Begin: func() (func(error), error) {
			return func(err error) {
				if err != nil {
					l.mu.Lock()
					l.failed = append(l.failed, err)
					l.mu.Unlock()
				}
			}, nil
		},
		Trip: func(callers int, _ time.Duration, _ error) {
			l.mu.Lock()
			l.sizes = append(l.sizes, callers)
			l.mu.Unlock()
		},
	}
}

func (l *tripLog) trips() (sizes []int, failed []error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append(sizes, l.sizes...), append(failed, l.failed...)
}

func (l *tripLog) failures() int {
	_, failed := l.trips()
	return len(failed)
}

func newBatcher(t testing.TB, client redis.UniversalClient, change ...func(*Options)) (*Batcher, *tripLog) {
	t.Helper()
	opt := Options{Deadline: 10 * time.Second, MaxBatch: 128, MaxWork: 100_000, InFlight: 4, Queue: 1000}
	for _, c := range change {
		c(&opt)
	}
	trips := &tripLog{}
	b := NewBatcher(NewScript(client), opt, trips.hooks())
	t.Cleanup(b.Close)
	return b, trips
}

func deadline(d time.Duration) func(*Options) { return func(o *Options) { o.Deadline = d } }

func mustDecide(t testing.TB, b *Batcher, e Entry) Reply {
	t.Helper()
	r, err := b.Decide(context.Background(), e)
	if err != nil {
		t.Error(err) // not Fatal: it may run outside the test's goroutine
	}
	return r
}

// awaitState waits until inFlight trips are under way and queued decisions wait.
func awaitState(t testing.TB, b *Batcher, inFlight, queued int) {
	t.Helper()
	redistest.Eventually(t, fmt.Sprintf("%d trips under way, %d decisions waiting", inFlight, queued), func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.inFlight == inFlight && b.queue.len() == queued
	})
}

// Calls that arrive while all trips are in flight share the next one.
func TestDecisionsShareTrips(t *testing.T) {
	server := redistest.Start(t)
	b, trips := newBatcher(t, server.Client(t), func(o *Options) { o.InFlight = 1 })
	rule := newRule(t, limit.PerHour(1000), limit.SlidingLog())
	mustDecide(t, b, Entry{Key: "k", Rule: rule, Cost: 1})
	awaitState(t, b, 0, 0)

	server.Pause()
	const all = 300
	var allowed atomic.Int64
	var wg sync.WaitGroup
	ask := func(i int) {
		if mustDecide(t, b, Entry{Key: fmt.Sprint("k", i%3), Rule: rule, Cost: 1}).Status == Allowed {
			allowed.Add(1)
		}
	}
	wg.Go(func() { ask(0) })
	awaitState(t, b, 1, 0)
	for i := range all - 1 {
		wg.Go(func() { ask(i) })
	}
	awaitState(t, b, 1, all-1)
	server.Resume()
	wg.Wait()
	if allowed.Load() != all {
		t.Errorf("%d of %d allowed", allowed.Load(), all)
	}
	if n := b.Answered(); n != all+1 {
		t.Errorf("%d answered", n)
	}
	sizes, failed := trips.trips()
	// The sizes are those of the warm-up, the trip under way, and one trip for all other calls.
	if fmt.Sprint(sizes) != "[1 1 299]" || failed != nil {
		t.Errorf("trips of %v, failures %v", sizes, failed)
	}
	group := []Entry{{Key: "k0", Rule: rule, Cost: 1, Group: 1}, {Key: "k0", Rule: rule, Cost: 1, Group: 1}}
	if _, err := b.DecideAll(t.Context(), group, time.Second); err != nil || b.Answered() != all+3 {
		t.Errorf("%d answered after a group of two more, %v", b.Answered(), err)
	}
}

// Laws 4 and 7: a decision returns in time even if Redis accepts connections and never answers, and the client is
// configured to wait for seconds.
func TestLaws4And7HungRedisDoesNotHoldUpDecisions(t *testing.T) {
	for name, honour := range map[string]bool{"client honours deadlines": true, "client does not": false} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			client := server.Client(t, func(o *redis.Options) {
				o.ContextTimeoutEnabled = honour
				o.ReadTimeout = 3 * time.Second
			})
			const within = 50 * time.Millisecond
			b, trips := newBatcher(t, client, deadline(within))
			rule := newRule(t, limit.PerHour(1000), limit.SlidingLog())
			decide(t, NewScript(client), "k", rule, 0, 1)
			redistest.Eventually(t, "Redis answers in time, also on a busy machine", func() bool {
				_, err := b.Decide(context.Background(), Entry{Key: "k", Rule: rule, Operation: lua.Peek, Cost: 1})
				return err == nil
			})
			before := trips.failures()
			server.Pause()
			// If this process itself stood still during a round, the round is not blamed on Redis, and the test
			// repeats it.
			for round := 0; round < 5 && trips.failures() == before; round++ {
				var wg sync.WaitGroup
				for range 200 {
					wg.Go(func() {
						started := time.Now()
						late := make(chan time.Duration, 1)
						control := time.AfterFunc(within, func() { late <- time.Since(started) - within })
						_, err := b.Decide(context.Background(), Entry{Key: "k", Rule: rule, Cost: 1})
						took := time.Since(started)
						if !errors.Is(err, ErrNoAnswer) {
							t.Errorf("error %v", err)
						}
						if took > 4*within {
							// The lateness of a bare timer shows for how long the machine stood still.
							if stall := <-late; took-stall > 4*within {
								t.Errorf("took %v, a bare timer was %v late", took, stall)
							}
						}
						control.Stop()
					})
				}
				wg.Wait()
			}
			if _, failed := trips.trips(); len(failed) == before || KindOf(failed[before]) != Timeout {
				t.Errorf("the breaker was told of %v, want a time-out", failed)
			}
			server.Resume()

			// Law 4: the calls that Redis finds in its sockets when it wakes up are late and charge nothing: of
			// 1,000 units exactly one was taken before, and this call takes one.
			if r := decide(t, NewScript(server.Client(t)), "k", rule, 0, 1); r.Remaining != 998 {
				t.Errorf("%d units remain, want 998: calls that had timed out were charged", r.Remaining)
			}
			b.Close() // waits for the calls that still hang in the client
			if r := decide(t, NewScript(server.Client(t)), "k", rule, 0, 1); r.Remaining != 997 {
				t.Errorf("%d units remain, want 997: calls that had timed out were charged", r.Remaining)
			}
		})
	}
}

// Law 4: an entry that reaches Redis after its NotAfter is not charged.
func TestLaw4LateEntriesChargeNothing(t *testing.T) {
	script := NewScript(redistest.Shared(t).Client(t))
	for _, a := range []limit.Algorithm{limit.SlidingLog(), limit.GCRA()} {
		t.Run(a.String(), func(t *testing.T) {
			rule := newRule(t, limit.PerHour(10).WithBurst(10), a)
			key := redistest.Prefix() + "late"
			now := decide(t, script, key, rule, 0, 1).Clock
			for notAfter, want := range map[int64]Status{now - 1_000_000: Expired, now + 60_000_000: Allowed} {
				replies, err := script.Run(context.Background(), []Entry{{Key: key, Rule: rule, Cost: 1, NotAfter: notAfter}}, 0)
				if err != nil || replies[0].Status != want {
					t.Errorf("not after %+d µs: %+v, %v", notAfter-now, replies, err)
				}
			}
			if r := decide(t, script, key, rule, 0, 1); r.Remaining != 7 {
				t.Errorf("%d remain, want 7", r.Remaining)
			}
			for late := range 2 { // of a group of two
				group := []Entry{{Key: key, Rule: rule, Cost: 1, Group: 1}, {Key: key + "2", Rule: rule, Cost: 1, Group: 1}}
				group[late].NotAfter, group[1-late].NotAfter = now-1_000_000, now+60_000_000
				if replies := runAll(t, script, group); replies[late].Status != Expired || replies[1-late].Status != HeldBack {
					t.Errorf("the entry %d of a group is late: %+v", late, replies)
				}
			}
			for i, want := range []int64{6, 9} {
				if r := decide(t, script, []string{key, key + "2"}[i], rule, 0, 1); r.Remaining != want {
					t.Errorf("after late groups, %d remain of key %d, want %d", r.Remaining, i, want)
				}
			}
		})
	}
}

// Law 4: an entry that expires only because Redis's clock was not known well enough is sent once more, with the
// clock from the reply.
func TestLaw4EntriesThatExpiredByAWrongClockAreResent(t *testing.T) {
	b, _ := newBatcher(t, redistest.Shared(t).Client(t))
	rule := newRule(t, limit.PerHour(10), limit.SlidingLog())
	key := redistest.Prefix() + "clock"
	mustDecide(t, b, Entry{Key: key, Rule: rule, Cost: 1})
	known := *b.script.only.clocks.only.Load()
	known.ahead -= 3600 * 1_000_000
	b.script.only.clocks.only.Store(&known) // as if Redis's clock had gone forward by an hour
	if r := mustDecide(t, b, Entry{Key: key, Rule: rule, Cost: 1}); r.Status != Allowed || r.Remaining != 8 {
		t.Errorf("%+v, want allowed with 8 remaining", r)
	}
}

// Emptying the script cache under load is not a failure for any caller, and nothing is charged twice.
func TestEmptiedScriptCacheIsNoFailure(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	b, trips := newBatcher(t, client)
	rule := newRule(t, limit.PerHour(10_000), limit.SlidingLog())
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range 20 {
				mustDecide(t, b, Entry{Key: "k", Rule: rule, Cost: 1})
			}
		})
	}
	for range 50 {
		if err := client.ScriptFlush(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	if _, failed := trips.trips(); failed != nil {
		t.Errorf("failures %v", failed)
	}
	if r := mustDecide(t, b, Entry{Key: "k", Rule: rule, Cost: 1}); r.Remaining != 10_000-64*20-1 {
		t.Errorf("%d remain, want %d", r.Remaining, 10_000-64*20-1)
	}
}

// A call that finds no room in the queue fails at once, with an error which says that nothing was charged. This
// does not count as a failure of Redis.
func TestWhoFindsNoRoomLearnsSoAtOnce(t *testing.T) {
	server := redistest.Start(t)
	b, trips := newBatcher(t, server.Client(t), func(o *Options) { o.InFlight, o.Queue = 1, 2 })
	rule := newRule(t, limit.PerHour(10), limit.GCRA())
	mustDecide(t, b, Entry{Key: "k", Rule: rule, Cost: 1})
	goOn := holdUp(t, b, server, rule, 2)
	if _, err := b.Decide(context.Background(), Entry{Key: "d", Rule: rule, Cost: 1}); !errors.Is(err, ErrNoRoom) || MayHaveRun(err) {
		t.Errorf("error %v", err)
	}
	goOn()
	if trips.failures() > 0 {
		t.Error("a trip is said to have failed")
	}
}

// holdUp pauses the server while one trip, the only one allowed, is under way and the given number of decisions
// wait. Calling goOn lets all of them finish.
func holdUp(t *testing.T, b *Batcher, server *redistest.Server, rule *Rule, waiting int) (goOn func()) {
	t.Helper()
	awaitState(t, b, 0, 0)
	server.Pause()
	var wg sync.WaitGroup
	for i := range 1 + waiting {
		wg.Go(func() { mustDecide(t, b, Entry{Key: fmt.Sprint("held up ", i), Rule: rule, Cost: 1}) })
		awaitState(t, b, 1, i)
	}
	return func() {
		server.Resume()
		wg.Wait()
	}
}

func TestCancelledContextEndsTheWait(t *testing.T) {
	server := redistest.Start(t)
	b, trips := newBatcher(t, server.Client(t))
	rule := newRule(t, limit.PerHour(10), limit.GCRA())
	mustDecide(t, b, Entry{Key: "k", Rule: rule, Cost: 1})
	server.Pause()
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error)
	go func() {
		_, err := b.Decide(ctx, Entry{Key: "k", Rule: rule, Cost: 1})
		result <- err
	}()
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	server.Resume()
	b.Close() // waits for the trip
	if _, failed := trips.trips(); failed != nil {
		t.Errorf("a caller's change of mind was reported as failure: %v", failed)
	}
	if _, err := b.Decide(context.Background(), Entry{Key: "k", Rule: rule, Cost: 1}); !errors.Is(err, limit.ErrClosed) {
		t.Errorf("error %v after Close", err)
	}
}

// Values that other programs have stored under a key are neither decoded nor overwritten.
func TestForeignValuesAreLeftAlone(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	b, _ := newBatcher(t, client)
	ctx := context.Background()
	prefix := redistest.Prefix()
	client.HSet(ctx, prefix+"hash", "field", "value")
	client.Set(ctx, prefix+"text", "someone else's", 0)
	client.Set(ctx, prefix+"later", "\xfe a later version's state of a key", 0)
	for _, a := range configurations() {
		rule := newRule(t, limit.PerHour(10), a)
		for _, key := range []string{"hash", "text", "later"} {
			_, err := b.Decide(ctx, Entry{Key: prefix + key, Rule: rule, Cost: 1})
			if !errors.Is(err, ErrUnreadable) {
				t.Errorf("%v on %s: error %v", a, key, err)
			}
		}
	}
	if v := client.Get(ctx, prefix+"text").Val(); v != "someone else's" {
		t.Errorf("overwritten with %q", v)
	}
}
