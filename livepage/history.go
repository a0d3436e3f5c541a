package livepage

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tierlimit/tierlimit/internal/inspect"
)

const (
	// sampleEvery is how often a page takes a sample of its limiter's counters, and kept is the number
	// of samples that it keeps: a minute's.
	sampleEvery = time.Second
	kept        = 60
)

// history records what a limiter did in the last minute. It is safe for concurrent use.
type history struct {
	mu      sync.Mutex
	moments []moment // the oldest first
}

// moment is a sample of the limiter's counters at one time.
type moment struct {
	at              time.Time
	state           string
	allowed, denied uint64
	bounds          []float64
	trips           []uint64
}

func momentOf(s inspect.Snapshot) moment {
	return moment{
		at: s.At, state: s.State, allowed: s.Allowed, denied: s.Denied,
		bounds: s.Health.TripBounds, trips: s.Health.TripCounts,
	}
}

// run adds a moment to the history every second until ctx ends.
func (h *history) run(ctx context.Context, inside inspect.Inside) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			h.add(momentOf(inside.Snapshot()))
		}
	}
}

func (h *history) add(m moment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.moments = append(h.moments, m)
	h.moments = h.moments[max(0, len(h.moments)-1-kept):]
}

// minute describes the last minute, as the page shows it.
type minute struct {
	Seconds         int // length of the history; less than a minute at first
	Allowed, Denied uint64
	TripP99         string // "" if there was no trip
	NotHealthy      int    // in seconds
	Bars            []bar
}

// bar is one second of the picture: its x coordinate, from 0, and the heights of its two parts, of 100
// at most.
type bar struct {
	X, Allowed, Denied int
	State              string
}

// until returns the description of the minute that ends now.
func (h *history) until(now moment) minute {
	h.mu.Lock()
	all := append(h.moments[:len(h.moments):len(h.moments)], now)
	h.mu.Unlock()
	first := all[0]
	m := minute{Allowed: now.allowed - first.allowed, Denied: now.denied - first.denied, TripP99: p99(first, now)}
	m.Seconds = int(now.at.Sub(first.at).Round(time.Second).Seconds())
	most := uint64(1)
	seconds := all[:len(all)-1] // without the second that has just begun, which says little
	for i := 1; i < len(seconds); i++ {
		most = max(most, seconds[i].allowed-seconds[i-1].allowed+seconds[i].denied-seconds[i-1].denied)
	}
	for i := 1; i < len(seconds); i++ {
		a, b := seconds[i-1], seconds[i]
		m.Bars = append(m.Bars, bar{
			X: kept - len(seconds) + i, State: b.state,
			Allowed: int(100 * (b.allowed - a.allowed) / most), Denied: int(100 * (b.denied - a.denied) / most),
		})
		if b.state != "healthy" {
			m.NotHealthy++
		}
	}
	return m
}

// p99 returns the 99th percentile of the trips' durations between two moments, rounded up to a bound of
// the histogram.
func p99(a, b moment) string {
	total, seen := uint64(0), uint64(0)
	for i := range b.trips {
		total += b.trips[i] - a.trips[i]
	}
	if total == 0 {
		return ""
	}
	for i := range b.trips {
		if seen += b.trips[i] - a.trips[i]; i < len(b.bounds) && 100*seen >= 99*total {
			return "at most " + time.Duration(b.bounds[i]*float64(time.Second)).Round(time.Microsecond).String()
		}
	}
	return fmt.Sprint("more than ", time.Duration(b.bounds[len(b.bounds)-1]*float64(time.Second)))
}

// Up returns the distance from the top of the picture, which is 100 high, to the top of the bar.
func (b bar) Up() int { return 100 - b.Allowed - b.Denied }

// DeniedUp returns the distance from the top of the picture to the top of the part that shows denials.
func (b bar) DeniedUp() int { return 100 - b.Denied }
