package remote

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

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
	replies := b.DecideApart([]Entry{{Key: "k", Rule: rule, Cost: 1}, damaged, {Key: "l", Rule: rule, Operation: lua.Take, Cost: 2}}, time.Second)
	if replies[0].Status != Allowed || replies[2].Status != Allowed || replies[2].Granted != 2 {
		t.Errorf("%+v", replies)
	}
	if !errors.Is(replies[1].Err, ErrUnreadable) || replies[0].Err != nil || replies[2].Err != nil {
		t.Errorf("the errors are %v, %v and %v", replies[0].Err, replies[1].Err, replies[2].Err)
	}
	b.mu.Lock()
	b.inFlight--
	b.mu.Unlock()
	b.running.Done()
	b.Close()
	if err := b.DecideApart([]Entry{{Key: "k", Rule: rule, Cost: 1}}, time.Second)[0].Err; !errors.Is(err, limit.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// Law 4: an entry of a trip apart that reaches Redis after its time is not carried out, and its reply says so.
func TestLaw4TripsApartAreNotLate(t *testing.T) {
	server := redistest.Start(t)
	b, _ := newBatcher(t, server.Client(t), func(o *Options) {})
	rule := newRule(t, limit.PerHour(1000), limit.GCRA())
	ask := func(within time.Duration) Reply {
		return b.DecideApart([]Entry{{Key: "k", Rule: rule, Cost: 1}}, within)[0]
	}
	if err := ask(time.Second).Err; err != nil { // from now on Redis's clock is known
		t.Fatal(err)
	}
	server.Pause()
	err := ask(20 * time.Millisecond).Err
	server.Resume()
	if !errors.Is(err, ErrNoAnswer) {
		t.Errorf("Redis is paused: %v", err)
	}
	for _, want := range []int64{998, 997} {
		if reply := ask(10 * time.Second); reply.Err != nil || reply.Remaining != want {
			t.Errorf("%+v: want %d units to remain, without a charge of the late entry", reply, want)
		}
	}
}

// Law 7: a trip apart keeps Redis no longer than other trips do. Entries that fit on no trip together are sent in
// several, and none is sent after Redis has failed.
func TestLaw7TripsApartAreBounded(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		client, trips := bubble.Client(t), &counted{}
		client.AddHook(trips)
		b, _ := newBatcher(t, client, func(o *Options) { o.MaxBatch, o.MaxWork = 8, 100 })
		gcra, log, long := newRule(t, limit.PerHour(10), limit.GCRA()), newRule(t, limit.PerHour(30), limit.SlidingLog()), newRule(t, limit.PerHour(300), limit.SlidingLog())
		charges := func(n int, rule *Rule) (entries []Entry) {
			for i := range n {
				entries = append(entries, Entry{
					Key: strconv.Itoa(i), Rule: rule, Operation: lua.Charge, Charges: []Charge{{Units: 10}}, Marker: "m", Sequence: b.answered.Add(1),
				})
			}
			return entries
		}
		b.DecideApart(charges(1, gcra), time.Second) // loads the script
		for _, test := range []struct {
			what    string
			entries []Entry
			fails   error // of the second trip
			trips   []int
		}{
			{"none", nil, nil, nil},
			{"as many entries as a trip has", charges(8, gcra), nil, []int{8}},
			{"more", charges(17, gcra), nil, []int{8, 8, 1}},
			{"logs, of which each writes 40 units", charges(5, log), nil, []int{2, 2, 1}},
			{"logs, of which each writes more than a trip may", charges(2, long), nil, []int{1, 1}},
			{"a failure", charges(25, gcra), context.DeadlineExceeded, []int{8, 8}},
			{"slots without a master", charges(25, gcra), serverSays("CLUSTERDOWN Hash slot not served"), []int{8, 8, 8, 1}},
		} {
			trips.sizes, trips.err = nil, test.fails
			replies := b.DecideApart(test.entries, time.Second)
			if !slices.Equal(trips.sizes, test.trips) || len(replies) != len(test.entries) {
				t.Errorf("%s: trips of %v entries and %d replies, want %v", test.what, trips.sizes, len(replies), test.trips)
			}
			for i, r := range replies {
				sent, fails := 8*len(test.trips), test.fails != nil && i >= 8 && i < 16
				switch {
				case i >= sent && !errors.Is(r.Err, errNotSent), fails && !errors.Is(r.Err, test.fails):
					t.Errorf("%s: entry %d: %v", test.what, i, r.Err)
				case i < sent && !fails && (r.Err != nil || r.Granted != 10):
					t.Errorf("%s: entry %d: %+v", test.what, i, r)
				}
			}
		}
	})
}

// counted is a hook of a client that counts the entries of trips, of which the second may fail.
type counted struct {
	answersWith
	sizes []int
}

func (c *counted) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		switch cmd.Name() {
		case "fcall", "evalsha", "eval":
			c.sizes = append(c.sizes, cmd.Args()[2].(int)/2) // each has a key and that of its marker
		}
		if len(c.sizes) == 2 && c.err != nil {
			cmd.SetErr(c.err)
			return c.err
		}
		return next(ctx, cmd)
	}
}

// Law 7: a trip apart ends in time also if the client does not keep deadlines. It is reported once. Close waits for the
// client.
func TestLaw7TripsApartEndInTime(t *testing.T) {
	t.Parallel()
	const within = 100 * time.Millisecond
	server := redistest.Start(t)
	client := server.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled, o.ReadTimeout = false, 20*time.Second })
	var failed atomic.Int64
	b := NewBatcher(NewScript(client), Options{Deadline: within, MaxBatch: 8, MaxWork: 100, InFlight: 1, Queue: 8}, Hooks{
		Begin: func() (func(error), error) { return func(error) { failed.Add(1) }, nil },
		Trip:  func(int, time.Duration, error) {},
	})
	entries := []Entry{{Key: "k", Rule: newRule(t, limit.PerHour(1000), limit.GCRA()), Cost: 1}}
	redistest.Eventually(t, "Redis decides", func() bool { return b.DecideApart(entries, time.Second)[0].Err == nil })
	failed.Store(0)
	server.Pause()
	began := time.Now()
	err := b.DecideApart(entries, within)[0].Err
	if took := time.Since(began); !errors.Is(err, ErrNoAnswer) || took > 10*within {
		t.Errorf("after %v: %v", took, err)
	}
	if entries[0].NotAfter != 0 {
		t.Error("the client has the caller's entries")
	}
	closed := make(chan struct{})
	go func() { b.Close(); close(closed) }()
	select {
	case <-closed:
		t.Error("Close does not wait for the client")
	case <-time.After(within):
	}
	server.Resume()
	<-closed
	if n := failed.Load(); n != 1 {
		t.Errorf("the trip is reported %d times", n)
	}
}
