// Package traffic counts wrong decisions on recorded requests, for a [plan.Need] that states how many
// are tolerable:
//
//	plan.Need{Wrong: plan.AtMost(0.001), Traffic: traffic.New(requests)}
//
// It decides the requests by simulation, with plain models of the algorithms. It is a package of its
// own so that a service without such a need does not link the models.
package traffic

import (
	"context"
	"sync"
	"time"

	"github.com/tierlimit/tierlimit/internal/simulate"
	"github.com/tierlimit/tierlimit/plan"
)

// Request is one recorded request, of one unit.
type Request struct {
	At  time.Time
	Key string
}

// Log holds recorded requests, for [plan.Need.Traffic]. Make one with [New]. A Log remembers the
// results of its simulations. It is safe for concurrent use.
type Log struct {
	requests *simulate.Traffic

	mu    sync.Mutex // guards known
	known map[plan.Candidate]float64
}

var _ plan.Traffic = (*Log)(nil)

// New makes a Log of requests in any order. It does not keep a reference to the slice, but it keeps the
// keys' strings.
func New(requests []Request) *Log {
	l := &Log{known: make(map[plan.Candidate]float64)}
	l.requests = simulate.New(func(yield func(int64, string) bool) {
		for _, r := range requests {
			if !yield(r.At.UnixMicro(), r.Key) {
				return
			}
		}
	})
	return l
}

// Requests returns the number of requests; a nil Log and the zero Log have none.
func (l *Log) Requests() int {
	if l == nil || l.requests == nil {
		return 0
	}
	return l.requests.Requests()
}

// Wrong returns the part of the requests, 0 to 1, that a candidate decides otherwise than the exact
// log, by simulation. It is 0 if there are no requests. The error wraps limit.ErrInvalidLimit or
// limit.ErrInvalidAlgorithm.
func (l *Log) Wrong(c plan.Candidate) (float64, error) {
	if l.Requests() == 0 {
		return 0, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if part, ok := l.known[c]; ok {
		return part, nil
	}
	result, err := l.requests.Run(context.Background(), c.Limit, c.Algorithm, nil)
	if err != nil {
		return 0, err
	}
	part := float64(result.Wrong.Total()) / float64(l.requests.Requests())
	l.known[c] = part
	return part, nil
}
