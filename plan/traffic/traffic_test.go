package traffic_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/plan"
	"github.com/tierlimit/tierlimit/plan/traffic"
)

// Candidates that no rule could have are refused. A panic in the simulation would end the process, because it runs
// in goroutines of its own.
func TestCandidatesThatCannotBeSimulated(t *testing.T) {
	log := traffic.New([]traffic.Request{{At: time.Unix(1, 0), Key: "k"}})
	for _, tc := range []struct {
		c    plan.Candidate
		want error
	}{
		{plan.Candidate{}, limit.ErrInvalidLimit},
		{plan.Candidate{Limit: limit.PerMinute(1)}, limit.ErrInvalidAlgorithm},
		{plan.Candidate{Limit: limit.Concurrent(1), Algorithm: limit.Concurrency()}, limit.ErrInvalidAlgorithm},
		{plan.Candidate{Limit: limit.Concurrent(1), Algorithm: limit.GCRA()}, limit.ErrInvalidAlgorithm},
		{plan.Candidate{Limit: limit.PerCalendar(1, limit.CalendarDay, time.UTC), Algorithm: limit.GCRA()}, limit.ErrInvalidAlgorithm},
	} {
		if part, err := log.Wrong(tc.c); !errors.Is(err, tc.want) {
			t.Errorf("%v for %v: %v, %v, want %v", tc.c, tc.c.Limit, part, err, tc.want)
		}
	}
}

// A nil Log, the zero Log and a Log of nothing have no requests, of which none is decided wrongly.
func TestNoRequests(t *testing.T) {
	c := plan.Candidate{Limit: limit.PerMinute(1), Algorithm: limit.GCRA()}
	for _, log := range []*traffic.Log{nil, {}, traffic.New(nil)} {
		if part, err := log.Wrong(c); log.Requests() != 0 || part != 0 || err != nil {
			t.Error(log.Requests(), part, err)
		}
	}
}

// A fixed window grants its limit again when the next window begins, and the exact log does not. The result is the same
// when it is asked for again.
func TestThePartThatIsDecidedWrongly(t *testing.T) {
	var requests []traffic.Request
	for _, second := range []int64{30, 58, 59, 61, 62, 119} { // of these, the log grants the first two, and the last
		requests = append(requests, traffic.Request{At: time.Unix(second, 0), Key: "k"})
	}
	log := traffic.New(requests)
	two := limit.PerMinute(2)
	for range 2 {
		for algorithm, want := range map[limit.Algorithm]float64{limit.SlidingLog(): 0, limit.FixedWindow(): 0.5} {
			if part, err := log.Wrong(plan.Candidate{Limit: two, Algorithm: algorithm}); part != want || err != nil {
				t.Errorf("%v: %v, %v, want %v", algorithm, part, err, want)
			}
		}
	}
}
