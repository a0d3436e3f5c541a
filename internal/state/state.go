// Package state decodes what Redis holds for the keys of rules: the values that the scripts in
// package lua write, as lua/state.lua and the files beside it describe them. It reads for people
// and never writes; decisions are made by the scripts alone.
package state

import (
	"errors"
	"fmt"

	"github.com/tierlimit/tierlimit/lua"
)

var (
	// ErrUnknown: the value has an encoding that this version does not know.
	ErrUnknown = errors.New("the value has an encoding that this version does not know; it may be one of a later version")
	// ErrDamaged: the value cannot have been written by this library as it is.
	ErrDamaged = errors.New("the value is damaged: decisions on this key fail until it is deleted or expires")
)

// State is what a key of a rule holds. Times are in µs since the Unix epoch on the key's own
// clock, which is Redis's, plus Offset.
type State struct {
	Algorithm string // as limit.Algorithm.Name
	Encoding  string // for people
	Bytes     int    // of the value; 0 of a sorted set
	Newest    int64  // the last charge
	Offset    int64  // how far Redis's clock has stepped back, all in all
	Now       int64  // when it was read

	// Window and Quota are those of the limit that the value was written under, of a log the
	// longest window and the largest quota of several. They are 0 where the value does not say.
	Window, Quota int64
	Buckets       int64 // of a sliding counter

	// Units are those that count now, the oldest first.
	Units []Units
	// Holders are the processes that hold them, under a limit of limit.Concurrent; the first is
	// the one that counts as dead first.
	Holders []Holder
}

// Units were charged together, as far as the value tells.
type Units struct {
	Count int64
	// They were charged from ChargedFrom to ChargedUntil; 0 where the value does not say.
	ChargedFrom, ChargedUntil int64
	// The first of them leaves at LeavesFrom, the last at LeavesUntil at the latest; 0 where the
	// value does not say.
	LeavesFrom, LeavesUntil int64
}

// Used is how many units count now.
func (s *State) Used() (units int64) {
	for _, u := range s.Units {
		units += u.Count
	}
	return units
}

// Decode reads the value of a string when Redis's clock shows now. window, if not 0, is the
// window that the rule has now, which decides what still counts; else the value's own does. The
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
	f := fields{value}
	s := &State{Bytes: len(value), Newest: f.int(1, 7), Offset: f.int(8, 7)}
	s.setNow(now)
	if err := decode(s, f, window); err != nil {
		return nil, err
	}
	return s, nil
}

// setNow sets the key's own time, which never goes back.
func (s *State) setNow(clock int64) { s.Now = max(clock+s.Offset, s.Newest) }

// add adds units, unless they have left.
func (s *State) add(u Units) {
	if u.Count > 0 && (u.LeavesUntil == 0 || u.LeavesUntil > s.Now) {
		s.Units = append(s.Units, u)
	}
}

// fields reads whole numbers from a value, big-endian.
type fields struct{ value []byte }

func (f fields) int(from, width int) (n int64) {
	for _, b := range f.value[from : from+width] {
		n = n<<8 | int64(b)
	}
	return n
}

func (f fields) is(length int64) error {
	if int64(len(f.value)) != length {
		return fmt.Errorf("%w: it has %d bytes, should have %d", ErrDamaged, len(f.value), length)
	}
	return nil
}
