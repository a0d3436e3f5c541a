// Package tiertest helps to test code that enforces limits. It provides a limiter that needs no Redis,
// and a clock that stands still until the test moves it.
//
//	func TestSearchIsLimited(t *testing.T) {
//		limiter, clock := tiertest.New(t)
//		search := limiter.MustRule("search", limit.PerMinute(60))
//		...
//		clock.Advance(time.Minute)
//	}
//
// The limiter is a real one, from package embedded. It decides as in production, but more slowly: a
// decision takes some 100 µs. Code that only needs a yes or a no can take a
// [github.com/tierlimit/tierlimit/limit.Allower], and its tests can pass a
// [github.com/tierlimit/tierlimit/limit.AllowerFunc].
package tiertest

import (
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/embedded"
	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/tiered"
)

// New returns a limiter that is closed at the end of the test, and its clock, which begins at the
// present. Limiters of different calls share nothing. The limiter logs nothing and has a deadline of 10
// s; options can change both.
//
// Decisions, remembered denials, leases and the ends of windows follow the clock. Waiting follows real
// time: test [tiered.Rule.Wait] with a limiter of package embedded in a bubble of [testing/synctest].
//
// What is stored does not expire with the clock, so some of it counts for longer than in Redis: units that have left a
// rule's window count again if the rule gets a longer window, and a hold can be settled or extended long after its end.
// A lease that is no longer used is given back at a later call, and not when its time is over. In a bubble, a limiter of
// package embedded does these things on time.
func New(t testing.TB, options ...tiered.Option) (*tiered.Limiter, *Clock) {
	t.Helper()
	if err := option.NotNil(options); err != nil { // counts only the caller's options
		t.Fatalf("tiertest: %v", err)
	}
	clock := NewClock(time.Now())
	all := append([]tiered.Option{
		tiered.VirtualClock(clock.Now), tiered.Logger(slog.New(slog.DiscardHandler)),
		// Tests have few keys, and allocating memory for many takes a second under the race detector.
		tiered.LedgerKeys(10_000), tiered.RememberDenials(10_000),
	}, options...)
	limiter, err := embedded.Open(all...)
	if err != nil {
		t.Fatalf("tiertest: %v", err)
	}
	t.Cleanup(func() {
		if err := limiter.Close(); err != nil {
			t.Errorf("tiertest: closing the limiter: %v", err)
		}
	})
	return limiter, clock
}

// Clock is a clock that stands still until it is moved. It is safe for concurrent use.
type Clock struct {
	mu  sync.Mutex
	now time.Time // a count of nanoseconds could hold only the years 1678 to 2262
}

// NewClock returns a clock that shows the given time, for [tiered.VirtualClock], which accepts times
// from the year 1970 to the year 2100.
func NewClock(now time.Time) *Clock { return &Clock{now: now.Round(0)} }

// Now returns the time that the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock forward by d, or backward if d is negative.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
