package outage

import (
	"maps"
	"testing"
	"time"
)

// The order of states is not that of their numbers.
func TestTheWorseOfTwoStates(t *testing.T) {
	order := []State{Healthy, Settling, Outage}
	for i, a := range order {
		for j, b := range order {
			if got, want := worse(a, b), order[max(i, j)]; got != want {
				t.Errorf("of %v and %v, %v is worse, want %v", a, b, got, want)
			}
		}
	}
}

// Each state counts the time between being entered and being left, also if it is entered again.
func TestTimeSpentInStates(t *testing.T) {
	start := time.Now()
	s := stateTimes{since: start}
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	s.enter(Outage, at(10))
	s.enter(Settling, at(13))
	s.enter(Outage, at(14))
	want := map[State]time.Duration{Healthy: 10 * time.Second, Outage: 3 * time.Second, Settling: time.Second}
	if got := s.until(at(14)); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	want[Outage] += 6 * time.Second
	s.end(at(20))
	for _, seconds := range []int{20, 30} {
		if got := s.until(at(seconds)); !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
}
