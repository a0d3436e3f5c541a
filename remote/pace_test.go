package remote

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"testing"
	"time"
)

const ms = 1000 // µs

// How much is asked of Redis at once depends on the time that Redis takes, and not on how
// little time this process has.
func TestPaceFollowsRedis(t *testing.T) {
	full := func(p *pace, took, server int64) { p.ended(took, server, p.entries, p.entries) }

	p := newPace(50*time.Millisecond, 8, 128)
	for range 20 { // the process is busy
		full(&p, 40*ms, 2*ms)
	}
	if p.entries != 128 {
		t.Errorf("%d entries a trip, although Redis is quick", p.entries)
	}
	if p.mayStart(1, time.Second.Microseconds(), false) {
		t.Error("a second trip at a time, for which the process has no time")
	}
	for range 20 { // Redis is
		full(&p, 40*ms, 30*ms)
	}
	if p.entries != fewestEntries || p.mayStart(1, time.Minute.Microseconds(), false) {
		t.Errorf("%d entries a trip, and a second trip at a time, although Redis has a queue", p.entries)
	}
	for range 50 {
		full(&p, 2*ms, ms)
	}
	if p.entries != 128 || !p.mayStart(1, time.Hour.Microseconds(), false) {
		t.Errorf("%d entries a trip, although Redis is quick again", p.entries)
	}
}

// Each further trip at a time needs a connection: one more only after others have ended
// well, and after a failure from the beginning.
func TestPaceOpensOneConnectionAtATime(t *testing.T) {
	p, now := newPace(50*time.Millisecond, 4, 128), int64(0)
	most := func() (underWay int) {
		for p.mayStart(underWay, now, true) {
			now += time.Second.Microseconds() // the budget is not what holds it back
			underWay++
		}
		return underWay
	}
	for want := 1; want <= 4; want++ {
		if got := most(); got != want {
			t.Errorf("%d trips under way at once, want %d", got, want)
		}
		for range tripsBeforeMore {
			p.ended(100, 100, 1, 1)
		}
	}
	if got := most(); got != 4 {
		t.Errorf("%d trips under way at once, want no more than 4", got)
	}
	if p.failed(); most() != 1 {
		t.Error("connections that broke are all opened again at once")
	}
}

// Many callers ride together; few travel alone, as often as they like.
func TestPaceFewTravelAlone(t *testing.T) {
	for callers, want := range map[int]int{1: 50_000, 2: 50_000, 4: extraTripsPerSecond, 100: extraTripsPerSecond} {
		p := newPace(50*time.Millisecond, 8, 128)
		for range 200 {
			p.ended(100, 100, callers, callers)
		}
		p.reach = 8
		started := 0
		for now := int64(0); now < time.Second.Microseconds(); now += 20 {
			if p.mayStart(1, now, false) {
				started++
			}
		}
		if started < want*9/10 || started > want*11/10 {
			t.Errorf("with %d callers to a trip, %d more trips in a second, want about %d", callers, started, want)
		}
	}
}

// Two trips divide the callers evenly, whoever comes back first; but not if they are few, if
// Redis has little to do for them or already too much, or if there is one trip only.
func TestPaceDividesBetweenTwoTrips(t *testing.T) {
	with := func(server int64, reach int) *pace {
		p := newPace(50*time.Millisecond, 8, 128)
		for range 50 {
			p.ended(2*server, server, 64, 64)
		}
		p.reach = reach
		return &p
	}
	for _, c := range []struct {
		p                               *pace
		waiting, riding, underWay, want int
	}{
		{with(200, 2), 64, 0, 1, 32},  // all are back: one half now, the other at once
		{with(200, 2), 32, 32, 2, 32}, // one half is under way
		{with(200, 2), 60, 4, 2, 32},  // nearly all came back with one trip
		{with(200, 2), 4, 60, 2, 4},
		{with(200, 2), 30, 0, 1, 30},         // few
		{with(200, 3), 64, 32, 3, 64},        // three trips: there is more than they can carry
		{with(200, 1), 64, 0, 1, 64},         // a second one is not to be had
		{with(10, 2), 64, 0, 1, 64},          // one hot key
		{with(2*ms, 2), 1000, 1000, 2, 1000}, // Redis has a queue
	} {
		if got := c.p.share(c.waiting, c.riding, c.underWay); got != c.want {
			t.Errorf("%d of %d waiting with %d riding on %d trips, want %d; Redis takes %d µs, up to %d trips", got, c.waiting, c.riding, c.underWay-1, c.want, c.p.server, c.p.reach)
		}
	}
}

// Who cannot be served in half a deadline hears so at once; that depends on how long
// trips take in all.
func TestPaceRoom(t *testing.T) {
	p := newPace(50*time.Millisecond, 8, 128)
	if p.room != math.MaxInt {
		t.Errorf("room for %d before anything is known", p.room)
	}
	for range 100 {
		p.ended(5*ms, ms, 128, 1000)
	}
	if p.room < 2250 || p.room > 2750 {
		t.Errorf("room for %d, want 2,500: trips of 1,000 callers take 5 ms", p.room)
	}
	if p.ended(5*ms, ms, 127, 1000); p.room != math.MaxInt {
		t.Errorf("room for %d, although the last trip had room left", p.room)
	}
}

// Law 7: time-outs are Redis's fault, unless they are noticed so late that this process
// must have been standing still; or a little late, while Redis answers others.
func TestBlame(t *testing.T) {
	b := &Batcher{opt: Options{Deadline: 50 * time.Millisecond}}
	other := errors.New("refused")
	for _, c := range []struct {
		err        error
		took       int64
		lastAnswer time.Duration // ago
		blamed     bool
	}{
		{ErrNoAnswer, 50 * ms, time.Hour, true},
		{ErrNoAnswer, 51 * ms, 0, true},
		{ErrNoAnswer, 60 * ms, 0, false},
		{ErrNoAnswer, 60 * ms, time.Hour, true},
		{ErrNoAnswer, 80 * ms, time.Hour, false},
		{fmt.Errorf("%w: %w", ErrNoAnswer, &net.OpError{Op: "write", Err: os.ErrDeadlineExceeded}), 50 * ms, 0, false},
		{fmt.Errorf("%w: %w", ErrNoAnswer, &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}), 50 * ms, 0, true},
		{other, 80 * ms, 0, true},
		{context.DeadlineExceeded, 80 * ms, 0, true},
	} {
		b.lastAnswer.Store(localTime() - c.lastAnswer.Microseconds())
		if got := b.blame(c.err, c.took); (got != nil) != c.blamed {
			t.Errorf("%v after %d µs, an answer %v ago: %v", c.err, c.took, c.lastAnswer, got)
		}
	}
}
