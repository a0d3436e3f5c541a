package remote

import (
	"errors"
	"fmt"
	"time"

	"github.com/tierlimit/tierlimit/lua"
)

// Status says what became of an entry.
type Status int8

const (
	// Denied: the cost does not fit now. Nothing was charged.
	Denied Status = iota
	// Allowed: the cost fitted and was charged.
	Allowed
	// Expired: the entry came after its not-after. Nothing was charged.
	Expired
	// Unreadable: the key holds something that this version does not know: another
	// type, or an encoding of a later version. Nothing was charged or overwritten.
	Unreadable
	// HeldBack: the cost fits, but another entry of the group does not. Nothing was
	// charged.
	HeldBack
)

// Reply answers one entry.
type Reply struct {
	// Status is Allowed only if all of the entry's count were.
	Status Status
	// Fitted is how many of the count were allowed.
	Fitted int64
	// Granted is the number of units charged, refunded, or leased; of a Charge, of those
	// that still count, and 0 if it was made before.
	Granted int64
	// Remaining is the number of units still free.
	Remaining int64
	// RetryAfter is when the same cost fits, NextAfter when a single unit does if
	// none does now, ResetAfter when the key is as good as new.
	RetryAfter, NextAfter, ResetAfter time.Duration
	// Life is how long a lease may be spent, from before it was asked for.
	Life time.Duration
	// Clock is the deciding server's clock, in µs; Stamp is the key's own time.
	Clock, Stamp int64
	// Err is set instead of all others where the entry's part of a batch failed.
	Err error
}

// share is the answer to one of the calls that an entry was made of, counted from 0, whose
// part of it is e: as if they had come one by one, but for ResetAfter, which is that of
// the last.
func (r *Reply) share(e *Entry, i int64) Reply {
	one := *r
	switch {
	case e.operation() != lua.Take || r.Err != nil || r.Status > Allowed: // nothing to share
	case i < r.Fitted:
		one.Status, one.Fitted, one.Granted = Allowed, 1, e.Cost
		one.Remaining = r.Remaining + (r.Fitted-1-i)*e.Cost
		one.RetryAfter, one.NextAfter = 0, 0
	default:
		one.Fitted, one.Granted = 0, 0
	}
	return one
}

var errReply = errors.New("the script's reply is not of the expected form")

// decode reads the integers that a run of the script answered into the replies of
// its entries; frame.lua describes them.
func decode(values []int64, entries []Entry, replies []Reply) error {
	if len(values) == 0 {
		return fmt.Errorf("%w: it is empty", errReply)
	}
	clock, rest := values[0], values[1:]
	for i := range entries {
		used, ok := replies[i].decode(&entries[i], clock, rest)
		if !ok {
			return fmt.Errorf("%w: %d integers end within entry %d of %d", errReply, len(values), i+1, len(entries))
		}
		rest = rest[used:]
	}
	if len(rest) > 0 {
		return fmt.Errorf("%w: %d integers are left over behind %d entries", errReply, len(rest), len(entries))
	}
	return nil
}

func (r *Reply) decode(e *Entry, clock int64, values []int64) (used int, ok bool) {
	*r = Reply{Clock: clock}
	if len(values) == 0 {
		return 0, false
	}
	outcome := values[0]
	switch outcome {
	case lua.Expired:
		r.Status = Expired
		return 1, true
	case lua.Unreadable:
		r.Status = Unreadable
		return 1, true
	}
	if len(values) < 4 {
		return 0, false
	}
	r.Remaining = values[1]
	r.ResetAfter = microseconds(values[2])
	r.Stamp = clock + values[3]
	if outcome == lua.HeldBack {
		r.Status = HeldBack
		return 4, true
	}

	wanted := e.count()
	switch e.operation() {
	case lua.Take:
		r.Fitted, r.Granted = outcome, outcome*e.Cost
	case lua.TakeUpTo:
		r.Fitted, r.Granted = min(1, outcome), outcome
	case lua.Refund, lua.Charge:
		r.Fitted, r.Granted = 1, outcome
	case lua.Lease:
		if len(values) < 5 {
			return 0, false
		}
		r.Status, r.Fitted, r.Granted = Allowed, 1, outcome
		r.Life = microseconds(values[4])
		return 5, true
	default:
		r.Fitted = outcome
	}
	if r.Fitted >= wanted {
		r.Status = Allowed
		return 4, true
	}
	if len(values) < 6 {
		return 0, false
	}
	r.RetryAfter = microseconds(values[4])
	r.NextAfter = microseconds(values[5])
	return 6, true
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
