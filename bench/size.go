package main

import "fmt"

// size is how many callers ask at the same time: in this process, or in each of several other processes.
type size struct {
	processes int // 0: this process
	callers   int // in each process
}

// String returns the size as labels show it: "64", or "16x4" for 16 processes with 4 callers each.
func (s size) String() string {
	if s.processes == 0 {
		return fmt.Sprint(s.callers)
	}
	return fmt.Sprintf("%dx%d", s.processes, s.callers)
}

// words returns the size as titles show it.
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

// MarshalText and UnmarshalText use the form of labels.
func (s size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s *size) UnmarshalText(text []byte) error {
	if _, err := fmt.Sscanf(string(text), "%dx%d", &s.processes, &s.callers); err == nil {
		return nil
	}
	s.processes = 0
	_, err := fmt.Sscanf(string(text), "%d", &s.callers)
	return err
}
