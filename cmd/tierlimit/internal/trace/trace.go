// Package trace turns an access log into an ordered stream of events that can be replayed in virtual
// time.
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
	// At is the time when the request arrives, in microseconds since the Unix epoch.
	At int64
	// Key is the key that the request is limited by. For a key above 64 bytes, it is a hash: logs of
	// untrusted requests contain any number of long keys.
	Key string
	// Cost is the number of units that the request takes, at least 1.
	Cost int64
}

// Trace is a whole log. It is immutable. Make one with [Load], or with [Of].
type Trace struct {
	requests []request
	names    []string // names of the keys, by the keys' numbers
	costs    []int64  // costs by the requests' numbers; nil if each cost is 1
	// Unnamed is the number of events that have no host, path or user to be limited by. They share a
	// key.
	Unnamed int
	// BadLines is the number of lines of the log that could not be read.
	BadLines int
}

// request is an event in 16 bytes and without a pointer, because a log has millions of events.
type request struct {
	at     int64
	key    int32 // number of its key
	number int32 // position in the log
}

// Len returns the number of events.
func (t *Trace) Len() int { return len(t.requests) }

// Keys returns the number of different keys.
func (t *Trace) Keys() int { return len(t.names) }

// Event returns the i-th event in the order of their times, 0 to Len()-1.
func (t *Trace) Event(i int) Event {
	return Event{At: t.At(i), Key: t.names[t.KeyOf(i)], Cost: t.CostOf(i)}
}

// At returns the time when an event arrives.
func (t *Trace) At(i int) int64 { return t.requests[i].at }

// KeyOf returns the number of an event's key, 0 to Keys()-1.
func (t *Trace) KeyOf(i int) int { return int(t.requests[i].key) }

// CostOf returns an event's cost.
func (t *Trace) CostOf(i int) int64 {
	if t.costs == nil {
		return 1
	}
	return t.costs[t.requests[i].number]
}

// OneEach reports whether every event takes one unit.
func (t *Trace) OneEach() bool { return t.costs == nil }

// All returns all events in the order of their times, with their positions.
func (t *Trace) All() iter.Seq2[int, Event] {
	return func(yield func(int, Event) bool) {
		for i := range t.requests {
			if !yield(i, t.Event(i)) {
				return
			}
		}
	}
}

// Of returns a trace of the given events.
func Of(events ...Event) *Trace {
	c := collector{keys: make(map[string]int32)}
	for _, e := range events {
		c.add(e)
	}
	return c.trace()
}

// longestKey is the length of the longest key that is kept unhashed.
const longestKey = 64

// Bounds limit how much of a log is kept in memory. Neither may be 0.
type Bounds struct {
	// Requests is the largest number of requests. Each takes 16 bytes, and up to some 40 while the log
	// is read; half as much again if the log has costs.
	Requests int
	// Keys is the largest number of keys. Each takes some 200 bytes at most, plus what a limiter needs
	// for a key.
	Keys int
}

// garbagePercent bounds the garbage while a log is read, as a part of the memory in use.
const garbagePercent = 25

// Default bounds the memory for reading a log to less than a gigabyte.
var Default = Bounds{Requests: 10_000_000, Keys: 1_000_000}

// The errors of a log that exceeds the bounds. A small gzip file may contain a very large log.
var (
	ErrRequests = errors.New("too many requests")
	ErrKeys     = errors.New("too many distinct keys")
)

// Load reads all remaining requests of r. If there are more than the bounds allow, its error wraps
// [ErrRequests] or [ErrKeys].
//
// Common Log Format has a resolution of one second, so all requests of a second would arrive at one
// instant. If all stamps are whole seconds, Load therefore moves each request by a random fraction of a
// second. The fractions come from a fixed seed, so the same log always gives the same trace.
//
// If the log cannot be read to its end, Load returns the trace of the requests before the failure along
// with the error.
func Load(r *accesslog.Reader, key accesslog.KeyKind, cost accesslog.CostKind, most Bounds) (*Trace, error) {
	// Otherwise the garbage of the lines would double the memory that the requests take.
	usual := debug.SetGCPercent(garbagePercent)
	if usual >= 0 && usual < garbagePercent {
		debug.SetGCPercent(usual)
	}
	defer debug.SetGCPercent(usual)
	c := collector{keys: make(map[string]int32)}
	unnamed, err := c.readAll(r, key, cost, most)
	if wholeSeconds(c.requests) {
		c.sort() // so that the parts of a rotated log give the same trace in any order
		spread(c.requests)
	}
	t := c.trace()
	t.Unnamed, t.BadLines = unnamed, r.BadLines()
	return t, err
}

// collector makes a trace of events that come in any order.
type collector struct {
	// Each key is stored once, in a copy. A substring of the log's lines would keep the whole log in
	// memory.
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

// sort sorts the events by time. Events of one instant stay in the order of the log.
func (c *collector) sort() {
	slices.SortFunc(c.requests, func(a, b request) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.number, b.number))
	})
}

func (c *collector) trace() *Trace {
	c.sort()
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

// spread moves each event forward by a random fraction of a second.
func spread(requests []request) {
	random := rand.New(rand.NewPCG(1995, 8))
	for i := range requests {
		requests[i].at += random.Int64N(second)
	}
}
