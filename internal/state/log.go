package state

import (
	"fmt"
	"math"
	"strconv"

	"github.com/tierlimit/tierlimit/lua"
)

// ring decodes a sliding log in a string; see lua/log_ring.lua.
func (s *State) ring(f fields, window int64) error {
	const slots = lua.HeaderBytes + 23
	if len(f) < slots {
		return fmt.Errorf("%w: it has %d bytes", ErrDamaged, len(f))
	}
	width := int(f[0]) + 4
	s.Algorithm, s.Encoding = "sliding-log", fmt.Sprintf("a ring of %d-byte time stamps", width)
	s.Window, s.Quota = f.int(lua.HeaderBytes, 6), f.int(lua.HeaderBytes+6, 5)
	capacity, head, count := f.int(lua.HeaderBytes+11, 4), f.int(lua.HeaderBytes+15, 4), f.int(lua.HeaderBytes+19, 4)
	if err := f.is(slots + capacity*int64(width)); err != nil {
		return err
	}
	if count > capacity || head >= capacity {
		return fmt.Errorf("%w: unit %d of %d in a ring of %d", ErrDamaged, head, count, capacity)
	}
	if s.Window > lua.LongestWindow || s.Quota > lua.MaxLogUnits || capacity > s.Quota {
		return fmt.Errorf("%w: a ring of %d for %d units in %d µs", ErrDamaged, capacity, s.Quota, s.Window)
	}
	mask := int64(1)<<(8*width) - 1
	for i := range count {
		slot := f.int(slots+int((head+i)%capacity)*width, width)
		s.logged(s.Newest-(s.Newest-slot)&mask, window) // a slot has the low bytes of a time
	}
	return nil
}

// logged adds a unit of a log.
func (s *State) logged(at, window int64) {
	if window == 0 {
		window = s.Window
	}
	if last := len(s.Units) - 1; last >= 0 && s.Units[last].ChargedFrom == at {
		s.Units[last].Count++
		return
	}
	s.add(Units{Count: 1, ChargedFrom: at, ChargedUntil: at, LeavesFrom: at + window, LeavesUntil: at + window})
}

// Member is a member of a sorted set.
type Member struct {
	Name  string
	Score float64
}

// DecodeSortedSet is [Decode] for a sliding log that is kept as a sorted set; see lua/log_zset.lua.
// members are all members of the set, by score.
func DecodeSortedSet(members []Member, now, window int64) (*State, error) {
	s := &State{Algorithm: "sliding-log", Encoding: "a sorted set"}
	marks := map[string]*int64{"\x00offset": &s.Offset, "\x00newest": &s.Newest, "\x00longest": &s.Window, "\x00keep": &s.Quota}
	units := members[min(len(members), len(marks)):]
	for _, m := range members[:len(members)-len(units)] { // the marks are the first members
		mark, ok := marks[m.Name]
		if !ok {
			break
		}
		// All but the offset are stored as negative scores, to lie below all stamps.
		score := m.Score
		if mark != &s.Offset {
			score = math.Abs(score)
		}
		if score < 0 || score >= 1<<53 || score != math.Trunc(score) {
			return nil, fmt.Errorf("%w: it has the number %v", ErrDamaged, m.Score)
		}
		*mark = int64(score)
		delete(marks, m.Name)
	}
	if len(marks) > 0 {
		return nil, fmt.Errorf("%w: it is a sorted set of another program, or has lost members", ErrDamaged)
	}
	if err := s.isSound(); err != nil {
		return nil, err
	}
	if s.Window > lua.LongestWindow || s.Quota > lua.MaxLogZSetUnits || int64(len(units)) > s.Quota {
		return nil, fmt.Errorf("%w: %d members for %d units in %d µs", ErrDamaged, len(units), s.Quota, s.Window)
	}
	s.setNow(now)
	for _, m := range units {
		s.logged(int64(max(0, min(m.Score, float64(s.Newest)))), window)
	}
	return s, nil
}

// DecodeMarker reads the marker of an instance's charges, which is the sequence of the last charge.
func DecodeMarker(value string) (sequence int64, err error) {
	if sequence, err = strconv.ParseInt(value, 10, 64); err != nil || sequence < 0 {
		return 0, fmt.Errorf("%w: a marker must be a whole number", ErrDamaged)
	}
	return sequence, nil
}
