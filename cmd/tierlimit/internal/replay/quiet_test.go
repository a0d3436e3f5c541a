package replay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/trace"
	"github.com/tierlimit/tierlimit/internal/model"
	"github.com/tierlimit/tierlimit/internal/standin"
	"github.com/tierlimit/tierlimit/limit"
)

// bursts returns a log of some keys, with bursts and pauses of all lengths between them.
func bursts(random *rand.Rand, n int, window int64) *trace.Trace {
	events := make([]trace.Event, n)
	at := int64(1_790_123_456_789_012)
	for i := range events {
		switch random.IntN(12) {
		case 0:
			at += random.Int64N(5 * window)
		case 1:
			at += random.Int64N(2*window + 2) // around the longest pause between requests that count together
		default:
			at += random.Int64N(window / 6)
		}
		cost := int64(1)
		if random.IntN(8) == 0 {
			cost = 1 + random.Int64N(4)
		}
		events[i] = trace.Event{At: at, Key: fmt.Sprint("key", random.IntN(3)), Cost: cost}
	}
	return trace.Of(events...)
}

// Every algorithm grants all quiet requests, and decides all other requests as if the quiet ones had
// not existed.
func TestEveryAlgorithmGrantsQuietRequests(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	quiet, loud := 0, 0
	for range 300 {
		window := []time.Duration{100 * time.Millisecond, 7 * time.Second, 333_333 * time.Microsecond}[random.IntN(3)]
		l := limit.Per(1+random.Int64N(12), window)
		algorithms := []limit.Algorithm{
			limit.SlidingLog(), limit.GCRA(), limit.FixedWindow(),
			limit.SlidingCounter(1, limit.Strict), limit.SlidingCounter(1, limit.Estimate),
			limit.SlidingCounter(16, limit.Strict), limit.SlidingCounter(5, limit.Estimate),
		}
		if random.IntN(2) == 0 {
			l = l.WithBurst(1 + random.Int64N(3*l.Quota()))
			algorithms = []limit.Algorithm{limit.GCRA()}
		}
		tr := bursts(random, 300, window.Microseconds())
		q := FindQuiet(tr, l)
		for _, a := range algorithms {
			all, others := map[string]model.Model{}, map[string]model.Model{}
			for i, e := range tr.All() {
				if all[e.Key] == nil {
					var err, same error
					all[e.Key], err = model.New(l, a)
					others[e.Key], same = model.New(l, a)
					if err != nil || same != nil {
						t.Fatal(err, same)
					}
				}
				got := all[e.Key].Decide(e.At, e.Cost)
				if q.is(i) {
					quiet++
					if !got.Allowed {
						t.Fatalf("%v, %v: request %d is quiet, and denied", l, a, i)
					}
					continue
				}
				loud++
				if want := others[e.Key].Decide(e.At, e.Cost); got.Allowed != want.Allowed || got.RetryAfter != want.RetryAfter {
					t.Fatalf("%v, %v: request %d: %+v, but without the quiet ones %+v", l, a, i, got, want)
				}
			}
		}
	}
	if quiet < loud/10 || loud < quiet/10 {
		t.Errorf("%d quiet and %d loud requests: the test shows little", quiet, loud)
	}
}

// A replay has the same result whether or not Redis is asked about the quiet requests.
func TestAReplayWithoutQuietRequests(t *testing.T) {
	tr := bursts(rand.New(rand.NewPCG(5, 6)), 1500, time.Second.Microseconds())
	l := limit.PerSecond(6)
	quiet := FindQuiet(tr, l)
	server, err := standin.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for _, a := range limit.Algorithms() {
		var results [2]Result
		for i, q := range []*Quiet{nil, quiet} {
			c := Config{Trace: tr, Quiet: q, Limit: l, Instances: 3, Client: func() *redis.Client { return redis.NewClient(server.Options()) }}
			if results[i], err = Run(context.Background(), c, a, Exact(tr, l, q)); err != nil {
				t.Fatal(err)
			}
		}
		if results[0] != results[1] || results[0].Denied == 0 {
			t.Errorf("%v: %+v, and without the quiet ones %+v", a, results[0], results[1])
		}
	}
}

// Requests whose costs add up to an overflow are not quiet, and neither are requests under windows that
// differ in length.
func TestWhatIsNotQuiet(t *testing.T) {
	var events []trace.Event
	for range 20 {
		events = append(events, trace.Event{At: 1, Key: "k", Cost: 999_999_999_999_999_999})
	}
	if q := FindQuiet(trace.Of(events...), limit.PerMinute(limit.MaxQuota)); q.is(0) || q.is(19) {
		t.Error("more than the quota at once is quiet")
	}
	month := limit.PerCalendar(10, limit.CalendarMonth, time.UTC)
	if FindQuiet(trace.Of(trace.Event{At: 1, Key: "k", Cost: 1}), month).is(0) {
		t.Error("a request of a calendar window is quiet")
	}
}
