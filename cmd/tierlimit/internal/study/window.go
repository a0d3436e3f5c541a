package study

import (
	"fmt"
	"slices"
	"time"

	"github.com/tierlimit/tierlimit/internal/simulate"
	"github.com/tierlimit/tierlimit/limit"
)

// Moment is a request in or around the worst window.
type Moment struct {
	At      int64 // µs since the epoch
	Allowed bool
	Held    int64 // units granted in the window that ends at this moment
}

// Window is the fullest window of a point, and the requests around it.
type Window struct {
	Point
	Key        string
	Start, End time.Time
	// Moments are the requests from a window before the start, first the denied ones and then the granted ones.
	// Of very many, they are a sample.
	Moments []Moment
	// Boundaries are the times at which the algorithm's own windows or sub-windows begin. They are left
	// out if there are too many to show.
	Boundaries []int64
	// Words explain what led to the window.
	Words  string
	grants []int64 // the times of the grants in the window
}

// maxMoments bounds the number of requests of one kind that are kept around one window. More could not be told apart.
const maxMoments = 10_000

// sample keeps moments: each of them at first, and when there are maxMoments, every second, every fourth, and so on.
type sample struct {
	kept        []Moment
	seen, every int
}

func (s *sample) add(m Moment) {
	if s.seen++; (s.seen-1)%max(1, s.every) != 0 {
		return
	}
	if s.kept = append(s.kept, m); len(s.kept) < maxMoments {
		return
	}
	half := s.kept[:0]
	for i := 0; i < maxMoments; i += 2 {
		half = append(half, s.kept[i])
	}
	s.kept, s.every = half, 2*max(1, s.every)
}

// WorstWindow returns the fullest window of a point. ok is false if no request was allowed.
func WorstWindow(p Point) (w Window, ok bool, err error) {
	if p.Worst.Units == 0 {
		return Window{}, false, nil
	}
	length := p.Limit.Window()
	w = Window{Point: p, Key: p.Traffic.Name(p.Worst.Key), End: time.UnixMicro(p.Worst.End).UTC()}
	w.Start = w.End.Add(-length)
	decide, err := simulate.NewDecider(p.Limit, p.Algorithm)
	if err != nil {
		return Window{}, false, err
	}
	from, until := w.Start.Add(-length).UnixMicro(), w.End.Add(length/4).UnixMicro()
	var granted []int64
	var shown [2]sample // of the denied requests, and of the granted
	for _, request := range p.Traffic.Of(p.Worst.Key) {
		at := p.Traffic.At(request)
		if at > until {
			break
		}
		allowed := decide(at)
		if allowed {
			granted = append(granted, at)
		}
		for len(granted) > 0 && granted[0] <= at-length.Microseconds() {
			granted = granted[1:]
		}
		kind := &shown[0]
		if allowed {
			kind = &shown[1]
		}
		if at >= from {
			kind.add(Moment{At: at, Allowed: allowed, Held: int64(len(granted))})
		}
		if allowed && at == p.Worst.End {
			w.grants = slices.Clone(granted)
		}
	}
	w.Moments = slices.Concat(shown[0].kept, shown[1].kept)
	w.Boundaries = boundaries(p, from, until)
	w.Words = w.explain()
	return w, true, nil
}

// maxBoundaries is the largest number of boundaries that a picture shows.
const maxBoundaries = 24

func boundaries(p Point, from, until int64) (at []int64) {
	parts := int64(p.Algorithm.Buckets())
	if p.Algorithm.Same(limit.FixedWindow()) {
		parts = 1
	}
	if parts == 0 || p.Limit.IsCalendar() || parts*(until-from)/p.Limit.Window().Microseconds() > maxBoundaries {
		return nil
	}
	window := p.Limit.Window().Microseconds()
	for i := from / window * parts; ; i++ {
		t := i/parts*window + (i%parts*window+parts-1)/parts
		if t > until {
			return at
		}
		if t >= from {
			at = append(at, t)
		}
	}
}

// explain returns an explanation of what led to the window.
func (w Window) explain() string {
	over := w.Worst.Units - w.Limit.Quota()
	switch {
	case over <= 0:
		return fmt.Sprintf("No window held more than the limit. The fullest held %d of %d.", w.Worst.Units, w.Limit.Quota())
	case w.Algorithm.Same(limit.FixedWindow()):
		before, boundary := w.aroundBoundary()
		return fmt.Sprintf("A window of the algorithm's own ended at %s. Units granted before that: %d; and after it, where the count starts again from zero: %d. Together that is %d above the limit within one window's length.",
			clock(boundary), before, w.Worst.Units-before, over)
	case w.Algorithm.Same(limit.GCRA()):
		return fmt.Sprintf("The key had a burst of %d units to use at once, and units returned evenly at the limit's rate while the window lasted. Burst and returned units together were %d above the limit.", w.Limit.Burst(), over)
	}
	oldest := w.inOldest()
	return fmt.Sprintf("%d of the window's units lay in its oldest sub-window, which by then was counted only in part, as if its units were spread evenly; but they came late in it, so nearly all were less than a window old. That let %d too many pass.", oldest, over)
}

// aroundBoundary returns the time of the boundary inside the window, and the number of the window's
// units that were granted before it.
func (w Window) aroundBoundary() (before int64, boundary time.Time) {
	length := w.Limit.Window().Microseconds()
	end := w.End.UnixMicro()
	at := end - end%length
	if w.Limit.IsCalendar() {
		start, _ := w.Limit.Calendar(w.End)
		at = start.UnixMicro()
	}
	for _, grant := range w.grants {
		if grant < at {
			before++
		}
	}
	return before, time.UnixMicro(at).UTC()
}

// inOldest returns the number of the window's units that lay in the oldest sub-window, which was
// counted only in part at the window's end.
func (w Window) inOldest() (units int64) {
	k, length := int64(w.Algorithm.Buckets()), w.Limit.Window().Microseconds()
	bucket := func(t int64) int64 { return t/length*k + t%length*k/length }
	current := bucket(w.End.UnixMicro())
	for _, grant := range w.grants {
		if bucket(grant) == current-k {
			units++
		}
	}
	return units
}

func clock(t time.Time) string { return t.Format("15:04:05.000") }
