package main

import "fmt"

// size is how many ask at the same time: callers in this process, or in each of so many
// processes of their own.
type size struct {
	processes int // 0: this one
	callers   int // in each
}

// String is the size in labels: "64", or "16x4" of 16 processes with 4 callers each.
func (s size) String() string {
	if s.processes == 0 {
		return fmt.Sprint(s.callers)
	}
	return fmt.Sprintf("%dx%d", s.processes, s.callers)
}

// words is the size in a title.
func (s size) words() string {
	if s.processes == 0 {
		return count(s.callers, "caller")
	}
	return fmt.Sprintf("%d processes of %s", s.processes, count(s.callers, "caller"))
}

func inThisProcess(callers ...int) (sizes []size) {
	for _, n := range callers {
		sizes = append(sizes, size{callers: n})
	}
	return sizes
}

// MarshalText and UnmarshalText are the size as in labels.
func (s size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s *size) UnmarshalText(text []byte) error {
	if _, err := fmt.Sscanf(string(text), "%dx%d", &s.processes, &s.callers); err == nil {
		return nil
	}
	s.processes = 0
	_, err := fmt.Sscanf(string(text), "%d", &s.callers)
	return err
}
