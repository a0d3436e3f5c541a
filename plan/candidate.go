package plan

import (
	"fmt"
	"slices"

	"github.com/tierlimit/tierlimit/limit"
)

// Candidate is a way to enforce a limit: an algorithm with its parameters. GCRA's burst is a part of the
// limit. Candidates are comparable with ==.
//
// The limit must be valid, and the algorithm must be able to enforce it: it is not [limit.Automatic], and it is
// [limit.Concurrency] for limits of [limit.Concurrent] and for no others. The methods do not check that, and mean
// nothing for other candidates: they take an automatic algorithm for one that never exceeds its limit. [Candidates] and
// [Choose] return only candidates that can be used.
type Candidate struct {
	Limit     limit.Limit
	Algorithm limit.Algorithm
}

// buckets are the numbers of sub-windows of the candidates that are counters.
var buckets = []int{1, 2, 4, 8, 12, 16, 24, 32, 48, 60, 96, 128, 192, limit.MaxBuckets}

// bursts are the bursts of the candidates that are GCRA, in percent of the quota.
var bursts = []int64{1, 2, 5, 10, 20, 50, 100}

// maxLog is the largest quota that a sliding log supports, see lua.MaxLogUnits.
const maxLog = 100_000

// maxLogZSet is the same for a sliding log that is kept as a sorted set, see lua.MaxLogZSetUnits.
const maxLogZSet = 5_000

// Candidates returns the configurations from which [Choose] chooses: a sliding log, counters of 1 to
// [limit.MaxBuckets] sub-windows under both roundings, GCRA with bursts of 1 % to 100 % of the quota
// (or only with the limit's own burst, if it has one), and a fixed window. For a calendar limit, a
// fixed window is the only candidate. For a limit of [limit.Concurrent], [limit.Concurrency] is.
//
// The error wraps [limit.ErrInvalidLimit].
func Candidates(l limit.Limit) ([]Candidate, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	if l.IsConcurrent() {
		return []Candidate{{l, limit.Concurrency()}}, nil
	}
	fixed := Candidate{l, limit.FixedWindow()}
	if l.IsCalendar() {
		return []Candidate{fixed}, nil
	}
	var all []Candidate
	if l.Quota() <= maxLog {
		all = append(all, Candidate{l, limit.SlidingLog()})
	}
	for _, k := range slices.Backward(buckets) {
		all = append(all, Candidate{l, limit.SlidingCounter(k, limit.Strict)}, Candidate{l, limit.SlidingCounter(k, limit.Estimate)})
	}
	for _, bursting := range withBursts(l) {
		all = append(all, Candidate{bursting, limit.GCRA()})
	}
	return append(all, fixed), nil
}

func withBursts(l limit.Limit) []limit.Limit {
	if l.HasBurst() {
		return []limit.Limit{l}
	}
	var all []limit.Limit
	for _, percent := range bursts {
		// Rounded up. The product cannot overflow: the largest quota times 100 fits.
		bursting := l.WithBurst((l.Quota()*percent + 99) / 100)
		if !slices.Contains(all, bursting) {
			all = append(all, bursting)
		}
	}
	return all
}

// String returns the algorithm with its parameters, GCRA's burst included: "sliding-counter:k=16,strict",
// "gcra:burst=100".
func (c Candidate) String() string {
	if c.Algorithm.Same(limit.GCRA()) {
		return fmt.Sprintf("%v:burst=%d", c.Algorithm, c.Limit.Burst())
	}
	return c.Algorithm.String()
}

// WorstCase returns the most units that can pass in any window, on Redis's clock (law 1). For a limit of
// [limit.Concurrent] it returns the most that can be held at any time: see [limit.Algorithm.WorstCase].
func (c Candidate) WorstCase() int64 { return c.Algorithm.WorstCase(c.Limit) }

// Above returns by how much the worst case is above the limit, as a part of the limit: 0 for exactly
// the limit, 1 for twice as much.
func (c Candidate) Above() float64 {
	return float64(c.WorstCase()-c.Limit.Quota()) / float64(c.Limit.Quota())
}

// Late returns how late capacity returns at most, as a part of the window. Whatever the exact log, with
// the same charges, would grant at some moment, the candidate grants at most that part of a window
// later.
//
//	sliding log      0
//	sliding counter  1/k: a unit counts until the whole of its sub-window is too old
//	GCRA             1 - burst/N: units wanted at once beyond the burst are spaced out
//	fixed window     0: units leave when the window ends, and never later than in a log
func (c Candidate) Late() float64 {
	switch {
	case c.Algorithm.Buckets() > 0:
		return 1 / float64(c.Algorithm.Buckets())
	case c.Algorithm.Same(limit.GCRA()):
		return max(0, 1-float64(c.Limit.Burst())/float64(c.Limit.Quota()))
	}
	return 0
}
