package remote

import (
	"testing"
	"time"
)

// Law 5: the process measures time with the monotonic clock, whatever the system's clock is set to.
func TestLaw5LocalTimeIsMonotonic(t *testing.T) {
	if processStart == processStart.Round(0) {
		t.Fatal("local time is counted from a time without a reading of the monotonic clock")
	}
	for _, at := range []time.Time{time.Now().Add(time.Minute), time.Now().Add(time.Minute).Round(0)} {
		if left := localTimeOf(at) - localTime(); left > time.Minute.Microseconds() || left < (50*time.Second).Microseconds() {
			t.Errorf("%v is %d µs from now", at, left)
		}
	}
	if deadline, _ := newTripContext(localTime() + 1000).Deadline(); deadline == deadline.Round(0) {
		t.Error("a trip's deadline has no reading of the monotonic clock")
	}
}
