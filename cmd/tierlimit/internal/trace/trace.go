// Package trace makes of an access log an ordered stream of events, to be
// replayed in virtual time.
package trace

import (
	"cmp"
	"errors"
	"fmt"
	"io"
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

// Trace is a whole log.
type Trace struct {
	// Events are in the order of their times.
	Events []Event
	// Keys is how many different keys they have.
	Keys int
	// Unnamed is how many events have no host, path or user to be limited by, and share a key.
	Unnamed int
	// BadLines is how many lines of the log could not be read.
	BadLines int
}

// longestKey is the longest key that is kept as it is.
const longestKey = 64

// Bounds are how much of a log is kept in memory at most. Neither may be 0.
type Bounds struct {
	// Requests, each of which takes 32 bytes, and up to some 80 while the log is read.
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
	events, keys, unnamed, err := readAll(r, key, cost, most)
	if wholeSeconds(events) {
		spread(events)
	}
	// Stable, so that requests of one instant stay in the order of the log.
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	return &Trace{Events: events, Keys: keys, Unnamed: unnamed, BadLines: r.BadLines()}, err
}

func readAll(r *accesslog.Reader, key accesslog.KeyKind, cost accesslog.CostKind, most Bounds) (events []Event, _, unnamed int, _ error) {
	// Each key is kept once, and apart from the log's lines, so that the trace
	// does not hold the whole log in memory.
	keys := make(map[string]string)
	for {
		request, err := r.Read()
		if errors.Is(err, io.EOF) {
			return events, len(keys), unnamed, nil
		}
		if err != nil {
			return events, len(keys), unnamed, err
		}
		if len(events) == most.Requests {
			return events, len(keys), unnamed, fmt.Errorf("%w: more than %d", ErrRequests, most.Requests)
		}
		if !key.In(request) {
			unnamed++
		}
		name := key.Of(request)
		if len(name) > longestKey {
			name = string(remote.NewUserKey(name)) // as a limiter does
		}
		kept, known := keys[name]
		if !known {
			if len(keys) == most.Keys {
				return events, len(keys), unnamed, fmt.Errorf("%w: more than %d, in the first %d requests", ErrKeys, most.Keys, len(events)+1)
			}
			kept = strings.Clone(name)
			keys[kept] = kept
		}
		events = append(events, Event{At: request.Time.UnixMicro(), Key: kept, Cost: cost.Of(request)})
	}
}

const second = 1_000_000 // microseconds

func wholeSeconds(events []Event) bool {
	return !slices.ContainsFunc(events, func(e Event) bool { return e.At%second != 0 })
}

// spread moves each event by a random part of the second behind its stamp.
func spread(events []Event) {
	random := rand.New(rand.NewPCG(1995, 8))
	for i := range events {
		events[i].At += random.Int64N(second)
	}
}
