// Package state decodes the content of the keys of rules in Redis: the values that the scripts in package
// lua write, as lua/state.lua and the files beside it describe them. It reads for people and never
// writes; only the scripts make decisions.
package state

import (
	"errors"
	"fmt"

	"github.com/tierlimit/tierlimit/lua"
)

var (
	// ErrUnknown: the value has an encoding that this version does not know.
	ErrUnknown = errors.New("the value has an encoding that this version does not know; a later version may have written it")
	// ErrDamaged: this library cannot have written the value as it is.
	ErrDamaged = errors.New("the value is damaged: decisions on this key fail until it is deleted or expires")
)

// State is the content of a key of a rule. Times are in µs since the Unix epoch on the key's own clock,
// which is Redis's clock plus Offset.
type State struct {
	Algorithm string // as limit.Algorithm.Name returns it
	Encoding  string // for people
	Bytes     int    // length of the value; 0 for a sorted set
	Newest    int64  // time of the last charge
	Offset    int64  // by how much Redis's clock has stepped back in total
	Now       int64  // when the value was read

	// Window and Quota are those of the limit under which the value was written. For a log they are the
	// longest window and the largest quota of several limits. They are 0 where the value does not say.
	Window, Quota int64
	Buckets       int64 // of a sliding counter

	// Units are the units that count now, the oldest first.
	Units []Units
	// Holders are the processes that hold the units, under a limit of limit.Concurrent. The first is the
	// one that will count as dead first.
	Holders []Holder
}

// Units are units that were charged together, as far as the value tells.
type Units struct {
	Count int64
	// The units were charged from ChargedFrom to ChargedUntil; 0 where the value does not say.
	ChargedFrom, ChargedUntil int64
	// The first unit leaves at LeavesFrom, and the last one at LeavesUntil at the latest.
	LeavesFrom, LeavesUntil int64
}

// Used returns the number of units that count now.
func (s *State) Used() (units int64) {
	for _, u := range s.Units {
		units += u.Count
	}
	return units
}

// Decode reads the value of a string when Redis's clock shows now. window, if it is not 0, is the window
// that the rule has now, which determines what still counts. If it is 0, the value's own window does. The
// error wraps [ErrUnknown] or [ErrDamaged].
func Decode(value []byte, now, window int64) (*State, error) {
	if len(value) == 0 {
		return nil, fmt.Errorf("%w: it is empty", ErrDamaged)
	}
	decode := map[byte]func(*State, fields, int64) error{
		lua.TagLog: (*State).ring, lua.TagLongLog: (*State).ring, lua.TagCounter: (*State).counter, lua.TagGCRA: (*State).gcra, lua.TagFixedWindow: (*State).fixed,
		lua.TagSlots: (*State).slots,
	}[value[0]]
	if decode == nil {
		return nil, fmt.Errorf("%w (tag %d)", ErrUnknown, value[0])
	}
	if len(value) < lua.HeaderBytes {
		return nil, fmt.Errorf("%w: it has %d bytes", ErrDamaged, len(value))
	}
	f := fields(value)
	s := &State{Bytes: len(value), Newest: f.int(1, 7), Offset: f.int(8, 7)}
	if err := s.isSound(); err != nil {
		return nil, err
	}
	s.setNow(now)
	if err := decode(s, f, window); err != nil {
		return nil, err
	}
	return s, nil
}

// isSound checks the fields that all states have, as the script does before it decides.
func (s *State) isSound() error {
	if s.Newest >= lua.EndOfTime || s.Offset > s.Newest {
		return fmt.Errorf("%w: it was charged at %d µs, on a clock that is %d µs ahead", ErrDamaged, s.Newest, s.Offset)
	}
	return nil
}

// setNow sets the time on the key's own clock, which never goes back.
func (s *State) setNow(clock int64) { s.Now = max(clock+s.Offset, s.Newest) }

// add adds units, unless they have left the window.
func (s *State) add(u Units) {
	if u.Count > 0 && u.LeavesUntil > s.Now {
		s.Units = append(s.Units, u)
	}
}

// fields reads whole numbers from a value, big-endian.
type fields []byte

func (f fields) int(from, width int) (n int64) {
	for _, b := range f[from : from+width] {
		n = n<<8 | int64(b)
	}
	return n
}

func (f fields) is(length int64) error {
	if int64(len(f)) != length {
		return fmt.Errorf("%w: it has %d bytes, should have %d", ErrDamaged, len(f), length)
	}
	return nil
}
