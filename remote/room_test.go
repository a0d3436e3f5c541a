package remote

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// Law 7: as many calls may wait as can be answered within four fifths of their time, at the rate of full trips. If
// no trip has been full for as long as a call may take, any number may wait.
func TestLaw7RoomFollowsTheRateOfAnswers(t *testing.T) {
	var r room
	const deadline = 50_000 // µs
	now := int64(1_000_000)
	unlimited := func(when string) {
		t.Helper()
		if n := r.capacity(now, deadline); n != math.MaxInt {
			t.Errorf("room for %d %s", n, when)
		}
	}
	room := func(want int, when string) {
		t.Helper()
		if n := r.capacity(now, deadline); n < want*39/40 || n > want*41/40 {
			t.Errorf("room for %d calls %s, want %d", n, when, want)
		}
	}
	unlimited("before anything is known")
	now += 20_000
	r.ended(now, 20_000, 10, true, deadline)
	unlimited("after one trip that took long")
	for range 100 { // 100 calls a millisecond, in trips of 4 ms, two of which overlap
		now += 2000
		r.ended(now, 4000, 200, true, deadline)
	}
	room(4000, "in 40 ms at 100 a millisecond")
	r.ended(now-40_000, 4000, 20, true, deadline)
	r.last = now
	room(4000, "although a trip that ended earlier was recorded last")
	for range 20 { // Redis is ten times as slow
		now += 20_000
		r.ended(now, 20_000, 200, true, deadline)
	}
	room(400, "in 40 ms at 10 a millisecond")
	for range 9 { // while the other calls are under way, few wait for the next trip
		now += 1000
		r.ended(now, 40_000, 2, false, deadline)
	}
	room(400, "although some trips were not full")
	now += 1000
	r.ended(now, 1000, 160, false, deadline)
	if n := r.capacity(now, deadline); n < 480 {
		t.Errorf("room for %d calls after a trip of 160 in a millisecond that was not full", n)
	}
	now += deadline
	unlimited("once no trip has been full for long")
	r.ended(now, 100, 1, false, deadline)
	now++
	r.ended(now, 20_000, 10, true, deadline)
	unlimited("after one trip that was full again")
}

// Law 7: calls that are under way take room like calls that wait, because Redis answers them first.
func TestLaw7CallsUnderWayTakeRoom(t *testing.T) {
	b, _, rule := hang(t, 2*time.Second)
	b.mu.Lock()
	b.room.took, b.room.calls, b.room.full = 2e6, 2, localTime() // room for one call
	b.mu.Unlock()
	if _, err := b.Decide(t.Context(), Entry{Key: "k", Rule: rule, Cost: 1}); !errors.Is(err, ErrNoRoom) {
		t.Errorf("a call while another is under way: %v", err)
	}
}

// Law 6: only some of the calls for which there is no room are turned away at once. Otherwise, callers that
// immediately ask again would keep the processors from the trips.
func TestLaw6FewAreTurnedAwayAtOnce(t *testing.T) {
	var r room
	turnedAway, now := 0, int64(1_000_000_000)
	for range 1_000_000 { // a second of calls, one each µs
		now++
		if r.mayTurnAway(now) {
			turnedAway++
		}
	}
	if turnedAway < 100_000 || turnedAway > 101_000 {
		t.Errorf("%d of a million calls in a second were turned away, want 100,000 and 500 at the start", turnedAway)
	}
	synctest.Test(t, func(t *testing.T) { // all calls come at the same time
		b := NewBatcher(nil, Options{Deadline: time.Minute, InFlight: 1, Queue: 10 * turnAwayAtOnce}, Hooks{})
		rule := newRule(t, limit.PerHour(10), limit.GCRA())
		b.inFlight = 1 // no trip starts
		b.room.took, b.room.calls, b.room.full = 6e7, 1, localTime()
		turnedAway := 0
		for range 2 * turnAwayAtOnce {
			if _, _, err := b.enqueue(waitingCall(rule, 60_000*ms)); errors.Is(err, ErrNoRoom) {
				turnedAway++
			}
		}
		if turnedAway != turnAwayAtOnce || b.queue.len() != turnAwayAtOnce {
			t.Errorf("%d calls were turned away, and %d wait although there is no room, want %d each", turnedAway, b.queue.len(), turnAwayAtOnce)
		}
		b.Close()
	})
}

// A caller can learn that its call would be turned away at once before it reserves anything for the call. Once
// there is no room, the batcher assumes for a moment that this has not changed.
func TestTurnsAwayIfThereIsNoRoom(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		b, _ := newBatcher(t, bubble.Client(t), deadline(time.Second))
		rule := newRule(t, limit.PerHour(10), limit.GCRA())
		calls := make([]*call, 20)
		for i := range calls {
			calls[i] = waitingCall(rule, 1000*ms)
		}
		b.mu.Lock()
		b.queue = queueOf(calls...)
		b.mu.Unlock()
		answers := func(most float64) { // a second
			b.mu.Lock()
			defer b.mu.Unlock()
			b.room.took, b.room.calls, b.room.full = 1e6, most, localTime()
		}
		turnsAway := func(when string, want bool) {
			t.Helper()
			if b.TurnsAway() != want {
				t.Errorf("20 calls wait%s: the next is turned away: %v", when, !want)
			}
		}
		turnsAway(", and nothing is known of how fast Redis answers", false)
		answers(27) // in 0.8 s: 21
		turnsAway(" where 27 are answered in a second", false)
		answers(25) // in 0.8 s: 20
		turnsAway(" where 25 are answered in a second", true)
		answers(27)
		time.Sleep(microseconds(lookForRoom - 1))
		turnsAway(" where there was no room a moment ago", true)
		time.Sleep(microseconds(1))
		turnsAway(" where there is room again", false)

		answers(25)
		turnsAway(" where there is no room", true)
		b.mu.Lock() // as if another call looked for room, or a trip were loaded
		time.Sleep(microseconds(10*lookForRoom - 1))
		turnsAway(", the lock is taken, and there was no room lately", true)
		time.Sleep(microseconds(1))
		turnsAway(", the lock is taken, and it is long ago that there was no room", false)
		b.queue = queue{}
		b.mu.Unlock()
	})
}

// Laws 6 and 7: of the callers that are denied without Redis although it answers, only a few get their denial at
// once. The others get it at the end of their time.
func TestLaws6And7FewWhoAreDeniedGoOnAtOnce(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, bubble *redistest.Bubble) {
		b, _ := newBatcher(t, bubble.Client(t), deadline(time.Hour))
		ctx, cancel := context.WithCancel(t.Context())
		var turnedAway atomic.Int64
		var callers sync.WaitGroup
		const late = 1000 // µs
		for _, wait := range []time.Duration{0, microseconds(late)} {
			time.Sleep(wait)
			for range 2500 {
				callers.Go(func() {
					b.DelayDenied(ctx)
					turnedAway.Add(1)
				})
			}
			synctest.Wait()
			if want := turnAwayAtOnce + wait.Microseconds()/turnAwayEvery; turnedAway.Load() != want {
				t.Errorf("%d were turned away within %v, want %d", turnedAway.Load(), wait, want)
			}
		}
		cancel()
		callers.Wait()
		began := time.Now()
		in := DecideBy(t.Context(), began.Add(10*time.Millisecond))
		for range 2 * turnAwayAtOnce {
			callers.Go(func() { b.DelayDenied(in) })
		}
		callers.Wait()
		if took := time.Since(began); took != 10*time.Millisecond {
			t.Errorf("all were turned away after %v", took)
		}
	})
}

// hang returns a batcher with a trip to a Redis that does not answer until the test ends.
func hang(t *testing.T, within time.Duration, options ...func(*Options)) (*Batcher, *redistest.Server, *Rule) {
	t.Helper()
	server := redistest.Start(t)
	b, _ := newBatcher(t, server.Client(t), append(options, deadline(within))...)
	rule := newRule(t, limit.PerHour(1000), limit.GCRA())
	mustDecide(t, b, Entry{Key: "k", Rule: rule, Cost: 1})
	server.Pause()
	t.Cleanup(server.Resume)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go func() { _, _ = b.Decide(ctx, Entry{Key: "k", Rule: rule, Cost: 1}) }()
	redistest.Eventually(t, "a trip is under way", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.trips) > 0 && b.trips[0].unmerged > 0 // the trip is loaded
	})
	return b, server, rule
}

// Law 6: whether there is room depends on the limiter's deadline. It does not depend on the shorter time that a
// caller allows itself, and such a time that runs out does not count as load.
func TestLaw6RoomIsNotForACallerToChoose(t *testing.T) {
	t.Parallel()
	b, _, rule := hang(t, 4*time.Second)
	b.mu.Lock()
	b.room.took, b.room.calls, b.room.full = 4e6, 10, localTime() // room for 8 in four seconds, for none in 50 ms
	b.mu.Unlock()
	short, end := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer end()
	_, err := b.Decide(short, Entry{Key: "k", Rule: rule, Cost: 1})
	if errors.Is(err, ErrNoRoom) || !IsCallers(err) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a caller with 50 ms: %v", err)
	}
	// A caller whose context ends little before the limiter's deadline is not in a hurry.
	long, end := context.WithTimeout(t.Context(), 3600*time.Millisecond)
	defer end()
	if _, err := b.Decide(long, Entry{Key: "k", Rule: rule, Cost: 1}); !errors.Is(err, ErrNoAnswer) || IsCallers(err) {
		t.Errorf("a caller with 3.6 s of four: %v", err)
	}
}

// Law 7: when calls have waited for four fifths of their time, the newest are sent first. In order of arrival, all
// calls would be answered too late.
func TestLaw7TheNewestGoFirstWhenNotAllCanBeServed(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		b, server, rule := hang(t, 4*time.Second, func(o *Options) { o.MaxBatch, o.InFlight = 1, 1 })
		var decided [3]int64 // times on Redis's clock
		var callers sync.WaitGroup
		for i := range 3 {
			callers.Go(func() {
				r, err := b.Decide(t.Context(), Entry{Key: fmt.Sprint("k", i), Rule: rule, Cost: 1})
				if decided[i] = r.Clock; err != nil {
					t.Error(err)
				}
			})
			redistest.Eventually(t, "it waits", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.queue.len() == i+1 })
		}
		if late {
			b.mu.Lock()
			b.queue.calls[0].began -= 3_500_000
			b.mu.Unlock()
		}
		server.Resume()
		callers.Wait()
		if inOrder := decided[0] < decided[1] && decided[1] < decided[2]; inOrder == late {
			t.Errorf("one has waited for long: %v; decided at %v", late, decided)
		}
	}
}

// The newest calls are sent first also if a call has waited for so long that its trip would not end in time.
func TestTheNewestGoFirstIfTheirTripIsSlow(t *testing.T) {
	b, _ := newBatcher(t, redistest.Shared(t).Client(t), deadline(time.Minute))
	rule := newRule(t, limit.PerHour(10), limit.GCRA())
	for waited, newest := range map[int64]bool{25_000 * ms: false, 35_000 * ms: true} {
		first, last := waitingCall(rule, 60_000*ms), waitingCall(rule, 60_000*ms)
		first.began -= waited
		b.mu.Lock()
		b.took.next, b.inFlight, b.queue = 30_000*ms, 1, queueOf(first, last)
		b.mu.Unlock()
		trip := b.load(nil, localTime())
		if len(trip.calls) != 2 || (trip.calls[0] == last) != newest {
			t.Errorf("trips take 30 s of 60, and a call has waited for %d s: the newest of %d calls goes first: %v", waited/(1000*ms), len(trip.calls), !newest)
		}
		b.mu.Lock()
		b.remove(trip)
		b.took.next, b.inFlight = 0, 0
		b.mu.Unlock()
	}
}

// Law 7: the next trip is expected to take as long as the shorter of the last two, since one may be slow by chance, and
// as long as the longer one if Redis was slow both times and half as many calls were turned away as the trip carried.
func TestLaw7TheNextTripTakesAsLongAsTheLastTwo(t *testing.T) {
	const slow, carried = 80/slowPart + 1, 10 // ms, calls
	for _, c := range []struct {
		before, last, server int64 // ms
		declined             int
		next                 int64 // ms
	}{
		{2, 3, 3, 5, 2}, {3, 2, 2, 5, 2}, {2, 40, 40, 5, 2}, {40, 2, 2, 5, 2},
		{slow - 1, 40, 40, 5, slow - 1}, {40, slow - 1, slow - 1, 5, slow - 1},
		{slow, 40, 40, 5, 40}, {40, slow, slow, 5, 40}, {slow, 40, slow - 1, 5, slow}, {40, slow, slow - 1, 5, slow},
		{slow, 40, 40, 4, slow}, {40, slow, slow, 4, slow}, {slow, 40, 40, 0, slow},
	} {
		b, _ := newBatcher(t, redistest.Shared(t).Client(t), deadline(80*time.Millisecond))
		ended, now := &trip{cargo: cargo{unmerged: carried}, flight: flight{done: func(error) {}}}, localTime()
		for range 2 * carried { // while the first trip was in flight
			b.room.mayTurnAway(now)
		}
		b.tripEnded(ended, now, c.before*ms, c.before*ms, nil)
		for range c.declined {
			b.room.mayTurnAway(now)
		}
		b.tripEnded(ended, now+c.last*ms, c.last*ms, c.server*ms, nil)
		if b.took.next != c.next*ms {
			t.Errorf("the last trips took %d and %d ms, Redis %d of the last, %d calls were turned away: the next will take %d, want %d",
				c.before, c.last, c.server, c.declined, b.took.next/ms, c.next)
		}
	}
}

// A trip whose answer was read after the deadline says nothing about how long the next one will take: this
// process stood still.
func TestAnAnswerThatIsReadLateIsNoMeasure(t *testing.T) {
	b, _ := newBatcher(t, redistest.Shared(t).Client(t), deadline(80*time.Millisecond))
	for i, c := range []struct{ took, next int64 }{{2, 0}, {2, 2}, {81, 2}, {81, 2}, {80, 2}, {80, 80}} {
		full := &trip{cargo: cargo{unmerged: 10}, flight: flight{done: func(error) {}, full: true}}
		b.tripEnded(full, localTime()+int64(i)*100*ms, c.took*ms, ms, nil)
		if b.took.next != c.next*ms {
			t.Errorf("after trip %d, of %d ms, the next one will take %d µs, want %d ms", i, c.took, b.took.next, c.next)
		}
	}
}

// Law 7: trips that were in flight at the same time count as one of the last two: what slowed one of them down slowed
// down the others, too.
func TestLaw7TripsThatOverlapCountAsOne(t *testing.T) {
	var d durations
	for _, c := range []struct{ began, ended, next int64 }{
		{0, 2, 0}, {2, 22, 2}, {3, 24, 2}, {21, 44, 2}, {22, 46, 23}, {45, 49, 4}, {46, 80, 4}, {79, 84, 4}, {80, 89, 5},
	} {
		if d.ended(c.ended, c.ended-c.began, false); d.next != c.next {
			t.Errorf("after a trip from %d to %d the next one will take %d, want %d", c.began, c.ended, d.next, c.next)
		}
	}
}

// Law 7: a trip that leaves calls behind does not count as full if a trip that is in flight at the same time carries
// all of these calls.
func TestLaw7ATripIsFullWhileCallsWait(t *testing.T) {
	b, _ := newBatcher(t, redistest.Shared(t).Client(t))
	rule := newRule(t, limit.PerHour(10), limit.GCRA())
	for _, c := range []struct {
		calls, come int
		full        []bool
	}{{10, 0, []bool{false}}, {100, 0, []bool{false, false}}, {100, 200, []bool{true, true}}} {
		var calls []*call
		wait := func(n int) {
			for range n {
				calls = append(calls, waiting(callOf(t.Context(), Entry{Key: redistest.Prefix() + fmt.Sprint(len(calls)), Rule: rule, Cost: 1}), 60_000*ms))
				b.mu.Lock()
				b.queue.add(calls[len(calls)-1])
				b.mu.Unlock()
			}
		}
		b.mu.Lock()
		b.inFlight = b.opt.InFlight // no further trip starts
		b.mu.Unlock()
		wait(c.calls)
		var trips []*trip
		for range c.full {
			trips = append(trips, b.load(nil, localTime()))
			wait(c.come)
		}
		last := trips[len(trips)-1]
		b.run(last, localTime())
		for i, want := range c.full {
			if trips[i].full != want {
				t.Errorf("%d calls wait, %d after each trip is loaded: trip %d of %d is full: %v", c.calls, c.come, i+1, len(trips), !want)
			}
		}
		b.mu.Lock()
		b.trips, b.queue, b.inFlight = nil, queue{}, 0
		b.mu.Unlock()
	}
}

// Law 7: calls that have waited, and would be answered too late at the speed of the last trips, are not sent. A
// call that has just arrived is sent, and so is one that has less time than others.
func TestLaw7CallsThatWouldBeLateAreNotSent(t *testing.T) {
	b, _ := newBatcher(t, redistest.Shared(t).Client(t), deadline(time.Minute))
	rule := newRule(t, limit.PerHour(10), limit.GCRA())
	call := func(waited int64) *call {
		c := waitingCall(rule, 60_000*ms-waited)
		c.began -= waited
		return c
	}
	late, inTime, hurried, short, justCome := call(42_000*ms), call(18_000*ms), call(42_000*ms), call(42_000*ms), call(0)
	hurried.hurried, short.short = true, true
	b.mu.Lock()
	b.took.next = 30_000 * ms
	b.queue = queueOf(late, inTime, hurried, short, justCome)
	b.mu.Unlock()
	trip := b.load(nil, localTime())
	if n := trip.cargo.calls; n != 4 || !errors.Is(late.err, ErrNoAnswer) || late.state.Load() != callClaimed {
		t.Errorf("%d of 5 calls are sent, want 4; the late one: %v", n, late.err)
	}
	b.mu.Lock()
	b.remove(trip)
	b.took = durations{last: 120_000 * ms, before: 120_000 * ms, next: 120_000 * ms} // the last trips took longer than the deadline
	b.mu.Unlock()
	mustDecide(t, b, Entry{Key: redistest.Prefix() + "k", Rule: rule, Cost: 1})
}
