package replay

import (
	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/trace"
	"github.com/tierlimit/tierlimit/limit"
)

// Quiet is the set of the requests that every algorithm grants, whatever it decides about the others.
// Most requests of a log are quiet, because limits stop only a few. Asking Redis about them would take
// most of a replay's time and memory.
//
// A key's requests between two long pauses are quiet if at no time more units than the quota or the
// burst came within a horizon. The horizon is twice the window, so that
//
//   - a log or a fixed window never holds more than came within one window,
//   - a sliding counter never holds more than came within a window and a sub-window,
//   - GCRA never holds more than the burst: of the units older than the horizon, all have left,
//   - every algorithm has forgotten everything after a pause longer than the horizon, and starts anew.
//
// A burst larger than the quota takes longer to come back, and the horizon is longer in proportion.
type Quiet struct {
	requests []bool
	// worst is the largest number of units of a key among these requests that came within one window.
	worst int64
}

// FindQuiet finds the quiet requests of a trace. A request is quiet if it is quiet under each of the
// limits, which must have the same window. Under a calendar limit no request is quiet, because calendar
// windows differ in length.
func FindQuiet(t *trace.Trace, limits ...limit.Limit) *Quiet {
	q := &Quiet{requests: make([]bool, t.Len())}
	if len(limits) == 0 {
		return q
	}
	window := limits[0].Window().Microseconds()
	most, horizon := limits[0].Quota(), 2*window
	for _, l := range limits {
		if l.IsCalendar() {
			return q
		}
		most = min(most, l.Quota(), l.Burst())
		horizon = max(horizon, 2*window*((l.Burst()+l.Quota()-1)/l.Quota()))
	}
	for requests := range byKey(t) {
		for len(requests) > 0 {
			n := untilPause(t, requests, horizon)
			if fullest(t, requests[:n], horizon, most) <= most {
				q.worst = max(q.worst, fullest(t, requests[:n], window, most))
				for _, i := range requests[:n] {
					q.requests[i] = true
				}
			}
			requests = requests[n:]
		}
	}
	return q
}

// is reports whether a request is quiet. In a nil Quiet, no request is.
func (q *Quiet) is(request int) bool { return q != nil && q.requests[request] }

func (q *Quiet) worstWindow() int64 {
	if q == nil {
		return 0
	}
	return q.worst
}

// byKey yields the requests of one key after the other, each in the order of time.
func byKey(t *trace.Trace) func(yield func(requests []int32) bool) {
	return func(yield func([]int32) bool) {
		ends := make([]int32, t.Keys()+1) // at first where each key's requests begin, at the end where they end
		for i := range t.Len() {
			ends[t.KeyOf(i)+1]++
		}
		for key := range t.Keys() {
			ends[key+1] += ends[key]
		}
		sorted := make([]int32, t.Len())
		for i := range t.Len() {
			end := &ends[t.KeyOf(i)]
			sorted[*end] = int32(i)
			*end++
		}
		begin := int32(0)
		for _, end := range ends[:t.Keys()] {
			if !yield(sorted[begin:end]) {
				return
			}
			begin = end
		}
	}
}

// untilPause returns the number of requests before the first pause that is longer than the horizon.
func untilPause(t *trace.Trace, requests []int32, horizon int64) int {
	for n := 1; n < len(requests); n++ {
		if t.At(int(requests[n]))-t.At(int(requests[n-1])) > horizon {
			return n
		}
	}
	return len(requests)
}

// fullest returns the most units that came within a time of the given length. It stops at the first
// number above enough, so that costs from an untrusted log cannot add up to an overflow.
func fullest(t *trace.Trace, requests []int32, length, enough int64) (most int64) {
	sum, oldest := int64(0), 0
	for _, i := range requests {
		for t.At(int(requests[oldest])) <= t.At(int(i))-length {
			sum -= t.CostOf(int(requests[oldest]))
			oldest++
		}
		sum += t.CostOf(int(i))
		if most = max(most, sum); most > enough {
			return most
		}
	}
	return most
}
