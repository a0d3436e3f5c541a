package study

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/tierlimit/tierlimit/internal/simulate"
	"github.com/tierlimit/tierlimit/internal/textbook"
	"github.com/tierlimit/tierlimit/limit"
)

// Windows are the windows for which limits are proposed.
var Windows = []time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 24 * time.Hour}

// Proposal has the smallest limits of one window that would have affected at most a given part of the
// keys, and of the requests.
type Proposal struct {
	ByKeys, ByRequests Effect
}

// Effect is the effect that a limit would have had under the exact log.
type Effect struct {
	Limit    limit.Limit
	Denied   int       // requests
	Affected int       // keys with at least one denied request
	Who      []Limited // the most affected keys
}

// Limited is a key that would have been limited.
type Limited struct {
	Key              string
	Requests, Denied int
	Peak             int64 // most requests in a window
}

// maxLimited is the number of keys that are named at most.
const maxLimited = 10

// Find proposes limits from the traffic alone. For each window it finds the smallest limit that would
// have affected at most the given part of the keys, and the smallest for the requests.
func Find(ctx context.Context, t *simulate.Traffic, part float64, progress func(windows int)) ([]Proposal, error) {
	var proposals []Proposal
	for _, window := range Windows {
		f := finder{traffic: t, window: window, peaks: peaks(t, window)}
		byKeys := f.byKeys(part)
		byRequests, err := f.byRequests(ctx, part)
		if err != nil {
			return nil, err
		}
		proposals = append(proposals, Proposal{f.effect(byKeys), f.effect(byRequests)})
		progress(1)
	}
	return proposals, nil
}

// finder searches for limits of one window.
type finder struct {
	traffic *simulate.Traffic
	window  time.Duration
	peaks   []int64 // the most requests of each key in any window
}

func peaks(t *simulate.Traffic, window time.Duration) []int64 {
	all := make([]int64, t.Keys())
	for key := range all {
		worst := textbook.NewWorst(window)
		for _, request := range t.Of(key) {
			worst.Grant("", t.At(request))
		}
		all[key] = worst.Max()
	}
	return all
}

// wholePart returns how many of n a part is at most. A product that is slightly below a whole number because
// floating-point numbers are rounded, as 0.29 * 100 is, counts as that number.
func wholePart(part float64, n int) int {
	return int(math.Floor(part * float64(n) * (1 + 1e-12)))
}

// byKeys returns the smallest quota that affects at most a part of the keys. A limit affects exactly
// the keys whose peak is above it.
func (f finder) byKeys(part float64) (quota int64) {
	sorted := slices.Sorted(slices.Values(f.peaks))
	affected := wholePart(part, len(sorted))
	return sorted[max(0, len(sorted)-1-affected)]
}

// byRequests does the same for a part of the requests, by binary search: a larger limit does not deny
// more in total. (The i-th grant waits for the grant N before it to leave, so it is not later under a
// larger N.)
func (f finder) byRequests(ctx context.Context, part float64) (quota int64, err error) {
	allowed := wholePart(part, f.traffic.Requests())
	low, high := int64(1), slices.Max(f.peaks)
	for low < high && ctx.Err() == nil {
		middle := low + (high-low)/2
		if f.effect(middle).Denied <= allowed {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low, ctx.Err()
}

func (f finder) effect(quota int64) Effect {
	e := Effect{Limit: limit.Per(quota, f.window)}
	for key, peak := range f.peaks {
		if peak <= quota {
			continue
		}
		log, denied := textbook.New(quota, f.window), 0
		for _, request := range f.traffic.Of(key) {
			if !log.Allow("", f.traffic.At(request)) {
				denied++
			}
		}
		e.Denied += denied
		e.Affected++
		e.Who = append(e.Who, Limited{f.traffic.Name(key), len(f.traffic.Of(key)), denied, peak})
	}
	slices.SortStableFunc(e.Who, func(a, b Limited) int { return cmp.Compare(b.Denied, a.Denied) })
	e.Who = e.Who[:min(len(e.Who), maxLimited)]
	return e
}
