package durations

import "testing"

// The shortest and longest duration are those of what is in the set.
func TestSet(t *testing.T) {
	var s Set
	for i, step := range []struct {
		change            func()
		shortest, longest int
	}{
		{func() {}, 0, 0},
		{func() { s.Add(5) }, 5, 5},
		{func() { s.Add(7) }, 5, 7},
		{func() { s.Add(7) }, 5, 7},
		{func() { s.Add(3) }, 3, 7},
		{func() { s.Remove(7) }, 3, 7},
		{func() { s.Remove(7) }, 3, 5},
		{func() { s.Remove(3) }, 5, 5},
		{func() { s.Remove(5) }, 0, 0},
	} {
		step.change()
		if int(s.Shortest()) != step.shortest || int(s.Longest()) != step.longest {
			t.Errorf("after step %d: %d and %d, want %d and %d", i, s.Shortest(), s.Longest(), step.shortest, step.longest)
		}
	}
}
