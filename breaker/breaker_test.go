package breaker

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

var errLost = errors.New("lost")

func trip(t *testing.T, b *Breaker, result error) {
	t.Helper()
	done, err := b.Begin()
	if err != nil {
		t.Fatalf("Begin: %v", err)
	}
	done(result)
}

func TestOpensOnConsecutiveFailures(t *testing.T) {
	var changes []State
	b := New(time.Second, func(_, to State) { changes = append(changes, to) })
	for range consecutiveFailures - 1 {
		trip(t, b, errLost)
	}
	trip(t, b, nil) // a success in between starts the count again
	for range consecutiveFailures - 1 {
		trip(t, b, errLost)
	}
	if !b.Closed() {
		t.Fatal("open too early")
	}
	trip(t, b, errLost)
	if b.State() != Open || len(changes) != 1 || changes[0] != Open {
		t.Fatalf("state %v, changes %v", b.State(), changes)
	}
	if _, err := b.Begin(); !errors.Is(err, ErrOpen) {
		t.Fatalf("Begin on an open breaker: %v", err)
	}
}

// Trips that were in flight together and failed together count as one failure, until a trip fails that began
// afterwards.
func TestFailuresOfOneMomentDoNotOpenIt(t *testing.T) {
	for _, together := range []int{consecutiveFailures, 2 * consecutiveFailures} {
		b := New(time.Second, nil)
		var underWay []func(error)
		for range together {
			done, err := b.Begin()
			if err != nil {
				t.Fatal(err)
			}
			underWay = append(underWay, done)
		}
		for _, done := range underWay {
			done(errLost)
		}
		if !b.Closed() {
			t.Fatalf("%d trips that failed together opened it", together)
		}
		trip(t, b, errLost)
		if b.Closed() {
			t.Errorf("one more failure after %d together left it closed", together)
		}
	}
}

func TestOpensOnFailureRate(t *testing.T) {
	b := New(time.Second, nil)
	for range minTrips/2 - 1 {
		trip(t, b, nil)
		trip(t, b, errLost)
	}
	if !b.Closed() {
		t.Fatal("open before enough trips")
	}
	trip(t, b, nil)
	trip(t, b, errLost)
	if b.Closed() {
		t.Fatal("half of the trips failed, yet it is closed")
	}
}

// A lower failure rate leaves the breaker closed, however many trips there are.
func TestFewFailuresDoNotOpenIt(t *testing.T) {
	b := New(time.Second, nil)
	for range 3 * minTrips {
		trip(t, b, nil)
		trip(t, b, errLost)
		trip(t, b, nil)
	}
	if !b.Closed() {
		t.Fatal("a third of the trips failed, and it is open")
	}
}

// The failure rate is that of the last ratePeriod. Trips before that do not count.
func TestOldFailuresAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct {
			pause  time.Duration // of the test's clock, not of a real one
			closed bool
		}{{ratePeriod - rateBucket, false}, {ratePeriod, true}} {
			b := New(time.Second, nil)
			for range minTrips/2 - 1 {
				trip(t, b, nil)
				trip(t, b, errLost)
			}
			time.Sleep(test.pause)
			trip(t, b, nil)
			trip(t, b, errLost)
			if b.Closed() != test.closed {
				t.Errorf("closed is %v with half of the trips failed, but all before the last %v ago", b.Closed(), test.pause)
			}
		}
	})
}

// Trips that began before the rate period and end in it are not taken for trips in flight. Otherwise any number of
// failures after them would count as one failure of one moment.
func TestTripsThatTakeLongerThanTheRatePeriodDoNotKeepItClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(time.Second, nil)
		var underWay []func(error)
		for range consecutiveFailures + 1 {
			done, err := b.Begin()
			if err != nil {
				t.Fatal(err)
			}
			underWay = append(underWay, done)
		}
		time.Sleep(2 * ratePeriod)
		for _, done := range underWay {
			done(nil)
		}
		for range consecutiveFailures {
			trip(t, b, errLost)
		}
		if b.Closed() {
			t.Errorf("%d failures in a row left it closed", consecutiveFailures)
		}
	})
}

func TestOnlyAProbeClosesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(time.Second, nil)
		b.ForceOpen(errLost)
		if b.Closed() {
			t.Fatal("ForceOpen left it closed")
		}
		pings := 0
		ping := func(result error) func() error {
			return func() error { pings++; return result }
		}
		if err := b.Probe(ping(nil)); !errors.Is(err, ErrOpen) || pings != 0 {
			t.Fatalf("probe before its time: %v, %d pings", err, pings)
		}
		time.Sleep(time.Second + 1)
		if _, err := b.Begin(); !errors.Is(err, ErrOpen) {
			t.Fatal("a user's trip was let through as a probe")
		}
		if err := b.Probe(ping(errLost)); !errors.Is(err, errLost) || b.State() != Open {
			t.Fatalf("failed probe: %v, state %v", err, b.State())
		}
		time.Sleep(time.Second + 1)
		if err := b.Probe(ping(nil)); err != nil || !b.Closed() {
			t.Fatalf("probe: %v, state %v", err, b.State())
		}
		trip(t, b, nil)
	})
}

// If a caller is paused between finding the breaker closed and beginning its trip, for so long that the breaker
// lets a probe through, its trip is not that probe. The trip does not go to Redis, and the count of probes
// continues.
func TestATripThatIsHeldUpIsNoProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(time.Second, nil)
		probe := func() {
			t.Helper()
			time.Sleep(time.Second + 1)
			if err := b.Probe(func() error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		b.ForceOpen(errLost)
		probe()
		b.ForceOpen(errLost)
		if _, err := b.begin(); !errors.Is(err, ErrOpen) {
			t.Fatalf("a trip that was held up only until it was open: %v", err)
		}
		probe() // the first of the two probes needed after a relapse
		time.Sleep(time.Second + 1)
		if _, err := b.begin(); !errors.Is(err, ErrOpen) || b.State() != Open {
			t.Fatalf("a trip that was held up: %v, and the breaker is %v", err, b.State())
		}
		if probe(); !b.Closed() {
			t.Errorf("it is %v after two probes", b.State())
		}
	})
}

// ForceOpen opens the breaker even while trips are in flight, although trips that fail together count as one
// failure.
func TestForceOpenWithTripsUnderWay(t *testing.T) {
	for _, result := range []error{nil, errLost} {
		var changes []State
		b := New(time.Minute, func(_, to State) { changes = append(changes, to) })
		var underWay []func(error)
		for range 8 {
			done, err := b.Begin()
			if err != nil {
				t.Fatal(err)
			}
			underWay = append(underWay, done)
		}
		b.ForceOpen(errLost)
		if b.State() != Open {
			t.Fatalf("state %v after ForceOpen with %d trips under way, want open", b.State(), len(underWay))
		}
		for _, done := range underWay {
			done(result)
		}
		b.ForceOpen(errLost) // a second call changes nothing
		if b.State() != Open || len(changes) != 1 {
			t.Errorf("state %v after changes %v, want one, to open", b.State(), changes)
		}
	}
}

// ForceOpen leaves no trace when the breaker has been closed again.
func TestOneFailureAfterForceOpenDoesNotOpenIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(time.Second, nil)
		b.ForceOpen(errLost)
		time.Sleep(time.Second + 1)
		if err := b.Probe(func() error { return nil }); err != nil || !b.Closed() {
			t.Fatalf("probe: %v, state %v", err, b.State())
		}
		trip(t, b, errLost)
		if !b.Closed() {
			t.Error("one failure opened it")
		}
	})
}

// The number of probes that close the breaker doubles each time that it opens soon after it was closed, up to a
// bound. A failed probe restarts the count, and after a long enough time a single probe suffices again.
func TestRelapsesTakeMoreProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(time.Second, nil)
		probes := func() (n int) {
			for n = 1; ; n++ {
				time.Sleep(time.Second + 1)
				if err := b.Probe(func() error { return nil }); err != nil {
					t.Fatal(err)
				}
				if b.Closed() {
					return n
				}
			}
		}
		for _, want := range []int{1, 2, 4, 8, 16, maxProbes} {
			b.ForceOpen(errLost)
			if want > 2 {
				time.Sleep(time.Second + 1)
				_ = b.Probe(func() error { return nil })
				time.Sleep(time.Second + 1)
				if err := b.Probe(func() error { return errLost }); !errors.Is(err, errLost) {
					t.Fatal(err)
				}
			}
			if got := probes(); got != want {
				t.Fatalf("closed after %d probes, want %d", got, want)
			}
			time.Sleep(relapse - 1)
		}
		time.Sleep(time.Nanosecond)
		b.ForceOpen(errLost)
		if got := probes(); got != 1 {
			t.Fatalf("closed after %d probes, although it had been closed for %v", got, relapse)
		}
	})
}

// Only an opening increases the number of probes, not a failed last probe. However long Redis stays lost after a
// relapse, the number needed to close the breaker stays the same.
func TestFailedProbesDoNotTakeMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const retryAfter = time.Second
		b := New(retryAfter, nil)
		probe := func(result error) {
			t.Helper()
			time.Sleep(retryAfter + 1)
			if err := b.Probe(func() error { return result }); !errors.Is(err, result) {
				t.Fatalf("probe: %v, want %v", err, result)
			}
		}
		b.ForceOpen(errLost)
		probe(nil)
		b.ForceOpen(errLost)
		for range 2 { // within the time that counts as a relapse
			probe(nil)
			probe(errLost)
		}
		if probe(nil); b.Closed() {
			t.Error("one probe closed it after a relapse")
		}
		if probe(nil); !b.Closed() {
			t.Error("two probes left it open after one relapse")
		}
	})
}

func TestStateNames(t *testing.T) {
	for state, name := range map[State]string{Closed: "closed", HalfOpen: "half-open", Open: "open"} {
		if state.String() != name {
			t.Errorf("%d is called %q, want %q", state, state, name)
		}
	}
}
