// Package trace makes of an access log an ordered stream of events, to be
// replayed in virtual time.
package trace

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/accesslog"
	"github.com/tierlimit/tierlimit/remote"
)

// Event is one request.
type Event struct {
	// At is when it arrives, in microseconds since the Unix epoch.
	At int64
	// Key is what it is limited by; of one above 64 bytes, which logs of strangers'
	// requests have in any number, its hash.
	Key string
	// Cost is how many units it takes, at least 1.
	Cost int64
}

// Trace is a whole log, and immutable. Make one with [Load], or with [Of].
type Trace struct {
	requests []request
	names    []string // of the keys, by their numbers
	costs    []int64  // of the log's requests, by their numbers; nil if each is 1
	// Unnamed is how many events have no host, path or user to be limited by, and share a key.
	Unnamed int
	// BadLines is how many lines of the log could not be read.
	BadLines int
}

// request is an event in 16 bytes without a pointer, since a log has millions of them.
type request struct {
	at     int64
	key    int32 // its number
	number int32 // its place in the log
}

// Len is how many events there are.
func (t *Trace) Len() int { return len(t.requests) }

// Keys is how many different keys they have.
func (t *Trace) Keys() int { return len(t.names) }

// Event is one of them, 0 to Len()-1, in the order of their times.
func (t *Trace) Event(i int) Event {
	return Event{At: t.At(i), Key: t.names[t.KeyOf(i)], Cost: t.CostOf(i)}
}

// At is when an event arrives.
func (t *Trace) At(i int) int64 { return t.requests[i].at }

// KeyOf is the number of an event's key, 0 to Keys()-1.
func (t *Trace) KeyOf(i int) int { return int(t.requests[i].key) }

// CostOf is an event's cost.
func (t *Trace) CostOf(i int) int64 {
	if t.costs == nil {
		return 1
	}
	return t.costs[t.requests[i].number]
}

// OneEach reports whether each event takes one unit.
func (t *Trace) OneEach() bool { return t.costs == nil }

// All is all events in the order of their times, with their positions.
func (t *Trace) All() iter.Seq2[int, Event] {
	return func(yield func(int, Event) bool) {
		for i := range t.requests {
			if !yield(i, t.Event(i)) {
				return
			}
		}
	}
}

// Of is a trace of the given events.
func Of(events ...Event) *Trace {
	c := collector{keys: make(map[string]int32)}
	for _, e := range events {
		c.add(e)
	}
	return c.trace()
}

// longestKey is the longest key that is kept as it is.
const longestKey = 64

// Bounds are how much of a log is kept in memory at most. Neither may be 0.
type Bounds struct {
	// Requests, each of which takes 16 bytes, and up to some 40 while the log is read; half as much
	// again if the log has costs.
	Requests int
	// Keys, each of which takes some 200 bytes at most, and what a limiter needs of it.
	Keys int
}

// garbagePercent is how much garbage there may be while a log is read, as a part of what is kept.
const garbagePercent = 25

// Default keeps reading a log below a gigabyte.
var Default = Bounds{Requests: 10_000_000, Keys: 1_000_000}

// What Load refuses to keep: a small gzip may hold a very large log.
var (
	ErrRequests = errors.New("too many requests")
	ErrKeys     = errors.New("too many distinct keys")
)

// Load reads all requests that are left in r, as far as the bounds allow: its error wraps
// [ErrRequests] or [ErrKeys] if there are more.
//
// Common Log Format has a resolution of one second: taken as they are, all
// requests of a second would arrive at one instant. So where all stamps are
// whole seconds, each request is moved by a random fraction of a second. The
// fractions come from a fixed seed: the same log makes the same trace.
//
// If the log cannot be read to its end, the trace of what came before is
// returned along with the error.
func Load(r *accesslog.Reader, key accesslog.KeyKind, cost accesslog.CostKind, most Bounds) (*Trace, error) {
	// The garbage of lines would double what the requests take.
	usual := debug.SetGCPercent(garbagePercent)
	if usual >= 0 && usual < garbagePercent {
		debug.SetGCPercent(usual)
	}
	defer debug.SetGCPercent(usual)
	c := collector{keys: make(map[string]int32)}
	unnamed, err := c.readAll(r, key, cost, most)
	if wholeSeconds(c.requests) {
		spread(c.requests)
	}
	t := c.trace()
	t.Unnamed, t.BadLines = unnamed, r.BadLines()
	return t, err
}

// collector makes a trace of events that come in any order.
type collector struct {
	// Each key is kept once, and apart from the log's lines, so that the trace
	// does not hold the whole log in memory.
	keys     map[string]int32
	requests []request
	names    []string
	costs    []int64
}

func (c *collector) add(e Event) {
	number, known := c.keys[e.Key]
	if !known {
		number = int32(len(c.names))
		kept := strings.Clone(e.Key)
		c.keys[kept] = number
		c.names = append(c.names, kept)
	}
	if e.Cost != 1 && c.costs == nil {
		c.costs = make([]int64, len(c.requests), cap(c.requests))
		for i := range c.costs {
			c.costs[i] = 1
		}
	}
	if c.costs != nil {
		c.costs = append(c.costs, e.Cost)
	}
	c.requests = append(c.requests, request{at: e.At, key: number, number: int32(len(c.requests))})
}

// trace puts the events in order: those of one instant stay in the order of the log.
func (c *collector) trace() *Trace {
	slices.SortFunc(c.requests, func(a, b request) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.number, b.number))
	})
	return &Trace{requests: c.requests, names: c.names, costs: c.costs}
}

func (c *collector) readAll(r *accesslog.Reader, key accesslog.KeyKind, cost accesslog.CostKind, most Bounds) (unnamed int, _ error) {
	most.Requests = min(most.Requests, math.MaxInt32)
	for {
		request, err := r.Read()
		if errors.Is(err, io.EOF) {
			return unnamed, nil
		}
		if err != nil {
			return unnamed, err
		}
		if len(c.requests) == most.Requests {
			return unnamed, fmt.Errorf("%w: more than %d", ErrRequests, most.Requests)
		}
		if !key.In(request) {
			unnamed++
		}
		name := key.Of(request)
		if len(name) > longestKey {
			name = string(remote.NewUserKey(name)) // as a limiter does
		}
		if _, known := c.keys[name]; !known && len(c.names) == most.Keys {
			return unnamed, fmt.Errorf("%w: more than %d, in the first %d requests", ErrKeys, most.Keys, len(c.requests)+1)
		}
		c.add(Event{At: request.Time.UnixMicro(), Key: name, Cost: cost.Of(request)})
	}
}

const second = 1_000_000 // microseconds

func wholeSeconds(requests []request) bool {
	return !slices.ContainsFunc(requests, func(r request) bool { return r.at%second != 0 })
}

// spread moves each event by a random part of the second behind its stamp.
func spread(requests []request) {
	random := rand.New(rand.NewPCG(1995, 8))
	for i := range requests {
		requests[i].at += random.Int64N(second)
	}
}
