package livepage

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tierlimit/tierlimit/internal/inspect"
)

const (
	// sampleEvery is how often a page looks at its limiter, and kept for how many looks it keeps
	// what it saw: a minute.
	sampleEvery = time.Second
	kept        = 60
)

// history is what a limiter did in the last minute. It is safe for concurrent use.
type history struct {
	mu      sync.Mutex
	moments []moment // the oldest first
}

// moment is what had been counted by a time.
type moment struct {
	at              time.Time
	state           string
	allowed, denied uint64
	bounds          []float64
	trips           []uint64
}

func momentOf(s inspect.Snapshot) moment {
	m := moment{at: s.At, state: s.State, bounds: s.Health.TripBounds, trips: s.Health.TripCounts}
	for _, r := range s.Rules {
		for _, c := range r.Counts {
			m.allowed += c.Allowed
			m.denied += c.Denied
		}
	}
	return m
}

// run keeps the history until ctx ends.
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

// minute is the last minute, as it is shown.
type minute struct {
	Seconds         int // that there is something of: fewer at first
	Allowed, Denied uint64
	TripP99         string // "" if there was no trip
	NotHealthy      int    // seconds
	Bars            []bar
}

// bar is a second of the picture: x from 0, and its height of 100.
type bar struct {
	X, Allowed, Denied int
	State              string
}

// until is the minute until now.
func (h *history) until(now moment) minute {
	h.mu.Lock()
	all := append(h.moments[:len(h.moments):len(h.moments)], now)
	h.mu.Unlock()
	first := all[0]
	m := minute{Allowed: now.allowed - first.allowed, Denied: now.denied - first.denied, TripP99: p99(first, now)}
	m.Seconds = int(now.at.Sub(first.at).Round(time.Second).Seconds())
	most := uint64(1)
	seconds := all[:len(all)-1] // the one that has just begun says little
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

// p99 is how long 99 of 100 trips took at most between two moments.
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

// Up returns where the bar begins: its distance from the top of the picture, which is 100 high.
func (b bar) Up() int { return 100 - b.Allowed - b.Denied }

// DeniedUp returns the same for the part of the bar that shows denials.
func (b bar) DeniedUp() int { return 100 - b.Denied }
