package remote

import (
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// server is a server's true clock as a function of this process's clock: it is set differently, and drifts away by
// some parts in a million.
type server struct {
	ahead int64 // µs at local time 0
	ppm   int64
}

func (s server) clock(local int64) int64 { return s.ahead + local + local*s.ppm/1_000_000 }

const maxPPM = 1_000_000/driftShare - 1

func drawServer(t *rapid.T) server {
	return server{
		ahead: epoch + rapid.Int64Range(-1e12, 1e12).Draw(t, "ahead"),
		ppm:   rapid.Int64Range(-maxPPM, maxPPM).Draw(t, "drift"),
	}
}

// drawWay draws how long a message takes, in µs: on one machine, on a network, or on a bad day.
func drawWay(t *rapid.T, label string) int64 {
	return rapid.OneOf(rapid.Int64Range(0, 20), rapid.Int64Range(0, 2000), rapid.Int64Range(0, 500_000)).Draw(t, label)
}

// Law 4: on the server's own clock, a NotAfter is never later than the deadline, whatever the
// server's clock shows, however it drifts, and however unequal the times of messages are. It is
// earlier by at most the shortest time that a reply took to return, plus the drift since then.
func TestNotAfterIsNeverLate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawServer(t)
		c := newClocks(false)
		now := rapid.Int64Range(0, 1e12).Draw(t, "start")
		type reply struct{ read, wayBack int64 }
		var replies []reply
		for range rapid.IntRange(1, 30).Draw(t, "trips") {
			now += rapid.OneOf(rapid.Int64Range(0, 1000), rapid.Int64Range(0, 30_000_000), rapid.Int64Range(0, 3_600_000_000)).Draw(t, "pause")
			sent := now
			now += drawWay(t, "there")
			there, clock := now-sent, s.clock(now)
			back := drawWay(t, "back")
			now += back
			took := c.observe("key", clock, sent, now)
			replies = append(replies, reply{now - back, back})
			mostTook := int64(1 << 62)
			for _, r := range replies {
				mostTook = min(mostTook, there+r.wayBack+2*(now-r.read)/driftShare+4)
			}
			if took < there-4 || took > mostTook {
				t.Fatalf("the request was on its way for %d µs, and %d µs are told, want %d at most", there, took, mostTook)
			}

			deadline := now + rapid.Int64Range(0, 10_000_000).Draw(t, "deadline")
			notAfter, truly := c.notAfter("key", deadline), s.clock(deadline)
			if notAfter > truly {
				t.Fatalf("the not-after is %d µs late", notAfter-truly)
			}
			most := int64(1 << 62)
			for _, r := range replies {
				// The clock may have drifted one way while the process allows for the other way; each rounding adds
				// one µs.
				most = min(most, r.wayBack+2*(deadline-r.read)/driftShare+4)
			}
			if early := truly - notAfter; early > most {
				t.Fatalf("the not-after is %d µs early, want %d at most", early, most)
			}
		}
	})
}

// The batcher learns from the next reply that a clock was set forward or back. (A step back that is shorter than
// the message's travel time cannot be distinguished from a slow message; the not-after may then be late by the size
// of the step.)
func TestClockStepsAreLearnt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := server{ahead: epoch}
		c := newClocks(false)
		now := int64(1e9)
		observe := func() (there, back int64) {
			sent := now
			there, back = drawWay(t, "there"), drawWay(t, "back")
			now += there
			clock := s.clock(now)
			now += back
			c.observe("key", clock, sent, now)
			return there, back
		}
		for range 3 {
			observe()
		}
		for range rapid.IntRange(1, 4).Draw(t, "steps") {
			step := rapid.OneOf(rapid.Int64Range(-1e10, 1e10), rapid.Int64Range(-3000, 3000)).Draw(t, "step")
			s.ahead += step
			there, back := observe()
			notAfter, truly := c.notAfter("key", now), s.clock(now)
			late := int64(0)
			if step < 0 {
				late = there
			}
			if notAfter > truly+late {
				t.Fatalf("after a step of %d µs the not-after is %d µs late; the request took %d", step, notAfter-truly, there)
			}
			if notAfter < truly-back-back/driftShare-2 {
				t.Fatalf("after a step of %d µs the not-after is %d µs early; the reply took %d", step, truly-notAfter, back)
			}
			if step < 0 { // A lateness that remains is allowed, so start with new clocks.
				c = newClocks(false)
				observe()
			}
		}
	})
}

// On a Cluster, each node has its own clock. For a slot without a reply yet, the clock that is
// furthest behind is used. If that is wrong, the entry expires uncharged.
func TestClocksBySlot(t *testing.T) {
	const now, deadline = 5_000_000, 5_050_000
	c := newClocks(true)
	if got := c.notAfter("{a}", deadline); got != 0 {
		t.Errorf("with nothing known, the not-after is %d, want 0", got)
	}
	c.observe("{a}", epoch, now, now)
	c.observe("{b}", epoch-3_000_000, now, now)
	c.observe("{c}", epoch+3_000_000, now, now)
	drifted := int64(50_000 / driftShare)
	for key, want := range map[string]int64{
		"{a}":       epoch,
		"x:{a}:y":   epoch,
		"{b}":       epoch - 3_000_000,
		"{c}":       epoch + 3_000_000,
		"{unknown}": epoch - 3_000_000,
	} {
		if got := c.notAfter(key, deadline); got != want+50_000-drifted {
			t.Errorf("%s: the not-after is %d µs off", key, got-(want+50_000-drifted))
		}
	}
	c.observe("{unknown}", epoch+9_000_000, now, now)
	if got := c.notAfter("{unknown}", deadline); got != epoch+9_050_000-drifted {
		t.Errorf("a slot heard of: the not-after is %d", got)
	}
}

// A single server has one clock for all keys.
func TestOneClock(t *testing.T) {
	c := newClocks(false)
	c.observe("{a}", epoch, 1000, 1000)
	c.observe("{b}", epoch+5000, 1000, 1000) // set forward
	if got := c.notAfter("{a}", 1000); got != epoch+5000 {
		t.Errorf("the not-after is %d, want %d", got, int64(epoch+5000))
	}
}

func TestClocksConcurrently(t *testing.T) {
	c := newClocks(true)
	s := server{ahead: epoch}
	var wg sync.WaitGroup
	for g := range int64(4) {
		wg.Go(func() {
			for i := range int64(2000) {
				local := 1e6 + g + 10*i
				c.observe(string(rune('a'+i%20)), s.clock(local), local-5, local+5)
				if notAfter := c.notAfter(string(rune('a'+i%25)), local+100); notAfter > s.clock(local+100) {
					t.Errorf("the not-after is %d µs late", notAfter-s.clock(local+100))
				}
			}
		})
	}
	wg.Wait()
}
