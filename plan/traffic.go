package plan

import (
	"context"
	"sync"
	"time"

	"github.com/tierlimit/tierlimit/internal/simulate"
)

// Request is one request of a log, of one unit.
type Request struct {
	At  time.Time
	Key string
}

// Traffic is a log of requests that wrong decisions are counted on. Make it with
// [NewTraffic]. What was simulated once is remembered. It is safe for concurrent use.
type Traffic struct {
	requests *simulate.Traffic

	mu    sync.Mutex // guards known
	known map[Candidate]float64
}

// NewTraffic makes a Traffic of requests in any order. It keeps no reference to the
// slice; the keys' names it keeps.
func NewTraffic(requests []Request) *Traffic {
	t := &Traffic{known: make(map[Candidate]float64)}
	t.requests = simulate.New(func(yield func(int64, string) bool) {
		for _, r := range requests {
			if !yield(r.At.UnixMicro(), r.Key) {
				return
			}
		}
	})
	return t
}

// Requests is how many there are.
func (t *Traffic) Requests() int { return t.requests.Requests() }

// Wrong is the part of the requests that a candidate decides unlike the exact log,
// by simulation. The error wraps [limit.ErrInvalidLimit] or
// [limit.ErrInvalidAlgorithm].
func (t *Traffic) Wrong(c Candidate) (float64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if part, ok := t.known[c]; ok {
		return part, nil
	}
	result, err := t.requests.Run(context.Background(), c.Limit, c.Algorithm, nil)
	if err != nil {
		return 0, err
	}
	part := float64(result.Wrong.Total()) / float64(max(1, t.requests.Requests()))
	t.known[c] = part
	return part, nil
}
