// Package durations keeps the durations of things that come and go, such as the windows of rules.
package durations

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Set has a duration of each thing. Equal ones are counted. The zero value is empty. It is safe for concurrent use.
type Set struct {
	mu                sync.Mutex // guards number, and changes of the other two
	number            map[time.Duration]int
	shortest, longest atomic.Int64
}

// Add adds a duration.
func (s *Set) Add(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.number == nil {
		s.number = make(map[time.Duration]int)
	}
	if s.number[d]++; s.number[d] == 1 {
		s.changed()
	}
}

// Remove removes a duration that was added, once.
func (s *Set) Remove(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.number[d]--; s.number[d] == 0 {
		delete(s.number, d)
		s.changed()
	}
}

// changed finds the shortest and longest duration anew. mu must be held.
func (s *Set) changed() {
	all := append(slices.Sorted(maps.Keys(s.number)), 0) // 0: there may be none
	s.shortest.Store(int64(all[0]))
	s.longest.Store(int64(slices.Max(all)))
}

// Shortest returns the shortest duration, or 0 if there is none.
func (s *Set) Shortest() time.Duration { return time.Duration(s.shortest.Load()) }

// Longest returns the longest duration, or 0 if there is none.
func (s *Set) Longest() time.Duration { return time.Duration(s.longest.Load()) }
