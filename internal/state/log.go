package state

import (
	"fmt"
	"strconv"
	"strings"

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
	if count > capacity || head >= max(1, capacity) {
		return fmt.Errorf("%w: unit %d of %d in a ring of %d", ErrDamaged, head, count, capacity)
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
	marks := make(map[string]int64)
	s := &State{Algorithm: "sliding-log", Encoding: "a sorted set"}
	units := members[:0:0]
	for _, m := range members {
		if name, isMark := strings.CutPrefix(m.Name, "\x00"); isMark && len(m.Name) <= len("\x00longest") {
			marks[name] = int64(m.Score)
		} else {
			units = append(units, m)
		}
	}
	if len(marks) != 4 {
		return nil, fmt.Errorf("%w: it is a sorted set of another program, or has lost members", ErrDamaged)
	}
	for _, name := range []string{"newest", "longest", "keep"} { // stored as negative scores, to lie below all stamps
		marks[name] = max(marks[name], -marks[name])
	}
	s.Offset, s.Newest, s.Window, s.Quota = marks["offset"], marks["newest"], marks["longest"], marks["keep"]
	s.setNow(now)
	for _, m := range units {
		s.logged(int64(m.Score), window)
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
