package remote

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Law 7: as many calls may wait as are answered within four fifths of their time, at the rate at
// which full trips answer them; any number while trips are not full.
func TestLaw7RoomFollowsTheRateOfAnswers(t *testing.T) {
	var r room
	const deadline = 50_000 // µs
	if n := r.calls(deadline); n != math.MaxInt {
		t.Errorf("room for %d before anything is known", n)
	}
	now := int64(1_000_000)
	for range 100 { // 100 calls a millisecond, in trips of 4 ms of which two overlap
		now += 2000
		r.ended(now, 4000, 200, true)
	}
	if n := r.calls(deadline); n < 3900 || n > 4100 {
		t.Errorf("room for %d calls, want 4000: 40 ms at 100 a millisecond", n)
	}
	for range 100 { // Redis is ten times as slow
		now += 20_000
		r.ended(now, 20_000, 200, true)
	}
	if n := r.calls(deadline); n < 390 || n > 410 {
		t.Errorf("room for %d calls, want 400", n)
	}
	now += 1_000_000 // after a pause, a trip takes what it takes
	r.ended(now, 2000, 200, true)
	if n := r.calls(deadline); n < 400 {
		t.Errorf("room for %d calls after a pause", n)
	}
	r.ended(now+100, 100, 1, false)
	if n := r.calls(deadline); n != math.MaxInt {
		t.Errorf("room for %d once all who wait fit into a trip", n)
	}
}

// Law 6: whether there is room is a question of the limiter's deadline, not of how little time a
// caller allows itself: that is its own affair, and not load.
func TestLaw6RoomIsNotForACallerToChoose(t *testing.T) {
	server := redistest.Start(t)
	b, _ := newBatcher(t, server.Client(t), deadline(time.Second))
	rule := newRule(t, limit.PerHour(1000), limit.GCRA())
	mustDecide(t, b, Entry{Key: "k", Rule: rule, Cost: 1})
	server.Pause()
	t.Cleanup(server.Resume)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _, _ = b.Decide(ctx, Entry{Key: "k", Rule: rule, Cost: 1}) }() // is on its way
	await(t, "a trip", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.inFlight > 0 })
	b.mu.Lock()
	b.room.perCall = 100_000 // room for 8 in a second, for none in 50 ms
	b.mu.Unlock()
	short, end := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer end()
	_, err := b.Decide(short, Entry{Key: "k", Rule: rule, Cost: 1})
	if errors.Is(err, ErrNoRoom) || !IsCallers(err) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a caller with 50 ms: %v", err)
	}
}
