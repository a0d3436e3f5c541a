package remote

import (
	"errors"
	"fmt"
	"time"

	"github.com/tierlimit/tierlimit/gcra"
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
	// type, a damaged value, or an encoding of a later version. Nothing was charged.
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
	// Granted is the number of units charged, refunded, or leased; of a Settle, given back or
	// charged besides; of a Charge, of those that still count, and 0 if it was made before; of
	// Slots, those that the process was known to hold before.
	Granted int64
	// Remaining is the number of units still free.
	Remaining int64
	// RetryAfter is when the same cost fits, NextAfter when a single unit does if
	// none does now, ResetAfter when the key is as good as new.
	RetryAfter, NextAfter, ResetAfter time.Duration
	// Life is how long a lease may be spent, from before it was asked for; or how long a hold
	// that was extended lasts.
	Life time.Duration
	// Clock is the deciding server's clock, in µs; Stamp is the key's own time.
	Clock, Stamp int64
	// Err is set instead of all others where the entry's part of a batch failed.
	Err error

	outcomes string // of a Settle with a count: one byte for each
}

// share is the answer to one of the calls that an entry was made of: its own entry e, which
// begins with the i-th of the count, from 0, or of a release with the i-th unit. It is as if all had come one by one, but for
// ResetAfter, which is that of the last.
func (r *Reply) share(e *Entry, i int64) Reply {
	own := *r
	if e.Operation == lua.Refund && e.releases() {
		own.Granted = min(max(0, r.Granted-i), e.Cost)
		return own
	}
	if r.Err != nil || r.Status > Allowed {
		return own // nothing to share
	}
	switch e.operation() {
	case lua.Take, lua.Hold:
	case lua.Settle:
		if r.outcomes != "" {
			own.settled(int64(r.outcomes[i]))
			own.Granted, own.outcomes = 0, "" // what was given back or charged is told of all together
		}
		return own
	default:
		return own
	}
	own.Fitted = min(max(0, r.Fitted-i), e.count())
	own.Granted = own.Fitted * e.Cost
	if own.Fitted == e.count() {
		own.Status = Allowed
		own.Remaining = r.Remaining + (r.Fitted-i-own.Fitted)*e.Cost
		own.RetryAfter, own.NextAfter = 0, 0
	}
	return own
}

var errReply = errors.New("the script's reply is not of the expected form")

// The lengths of what is answered, in bytes.
const (
	timeBytes      = 7
	gcraBytes      = 34
	gcraPartsBytes = 40
	ringBytes      = 38 // without slots
)

// decode reads what a run of the script answered into the replies of its entries;
// frame.lua describes it.
func decode(text string, entries []Entry, replies []Reply) error {
	rest := text
	for i := range entries {
		used := replies[i].decode(&entries[i], rest)
		if used == 0 {
			return fmt.Errorf("%w: its %d bytes do not answer entry %d of %d", errReply, len(text), i+1, len(entries))
		}
		rest = rest[used:]
	}
	if len(rest) == 0 && len(entries) == 1 && replies[0].Clock > 0 {
		replies[0].Stamp = replies[0].Clock
		return nil
	}
	if len(rest) != timeBytes {
		return fmt.Errorf("%w: %d bytes are left over behind %d entries", errReply, len(rest), len(entries))
	}
	clock := readInt(rest, 0, timeBytes)
	for i := range replies {
		replies[i].Clock = clock
		replies[i].Stamp += clock
	}
	return nil
}

// decode reads the answer to an entry. It returns how many bytes that takes; 0 if it is none.
// What is told by a state is told for the time of its newest charge, which is now.
func (r *Reply) decode(e *Entry, text string) (used int) {
	*r = Reply{}
	if len(text) == 0 {
		return 0
	}
	switch kind := text[0]; {
	case kind == lua.AnswerNumbers:
		return r.decodeNumbers(e, text)
	case kind == lua.AnswerAllowed && len(text) >= 1+2*timeBytes:
		r.allowed(e)
		r.Remaining = readInt(text, 1, timeBytes)
		r.ResetAfter = microseconds(readInt(text, 1+timeBytes, timeBytes))
		return 1 + 2*timeBytes
	case kind == lua.TagGCRA && len(text) >= gcraBytes:
		r.allowedByGCRA(e, text, 0)
		return gcraBytes
	case kind == lua.AnswerWithParts && len(text) > gcraPartsBytes:
		r.allowedByGCRA(e, text[1:], readInt(text, 1+gcraBytes, gcraPartsBytes-gcraBytes))
		return 1 + gcraPartsBytes
	case (kind == lua.TagLog || kind == lua.TagLongLog) && len(text) >= ringBytes:
		r.allowed(e)
		r.Clock = readInt(text, 1, timeBytes)
		r.Remaining = e.Rule.quota - readInt(text, ringBytes-4, 4)
		r.ResetAfter = e.Rule.window
		return ringBytes
	}
	return 0
}

// allowed is what is the same of all that was decided straight through.
func (r *Reply) allowed(e *Entry) {
	r.Status, r.Fitted, r.Granted = Allowed, e.count(), e.count()*e.Cost
}

// allowedByGCRA reads a state: header (15 bytes), arrival time (7).
func (r *Reply) allowedByGCRA(e *Entry, state string, part int64) {
	r.allowed(e)
	now := readInt(state, 1, timeBytes)
	s := gcra.State{TAT: readInt(state, 15, timeBytes), Part: part}
	r.Clock = now
	r.Remaining, r.ResetAfter = e.Rule.rate.Free(s, now), microseconds(e.Rule.rate.Reset(s, now))
}

// decodeNumbers reads an answer of numbers.
func (r *Reply) decodeNumbers(e *Entry, text string) (used int) {
	if len(text) < 2 {
		return 0
	}
	count := int(text[1])
	used = 2 + count*timeBytes
	if len(text) < used {
		return 0
	}
	number := func(i int) int64 { return readInt(text, 2+i*timeBytes, timeBytes) }
	outcome := int64(0)
	if count > 0 {
		outcome = number(0) - lua.OutcomeOffset
	}
	switch {
	case count == 1 && outcome == lua.Expired:
		r.Status = Expired
		return used
	case count == 1 && outcome == lua.Unreadable:
		r.Status = Unreadable
		return used
	case count < 4:
		return 0
	}
	r.Remaining = number(1)
	r.ResetAfter = microseconds(number(2))
	r.Stamp = number(3) // what the key's own time is ahead of the clock, so far
	if outcome == lua.HeldBack {
		r.Status = HeldBack
		return used
	}

	switch e.operation() {
	case lua.Take, lua.Hold:
		r.Fitted, r.Granted = outcome, outcome*e.Cost
	case lua.TakeUpTo, lua.HoldUpTo:
		r.Fitted, r.Granted = min(1, outcome), outcome
	case lua.Refund, lua.Charge, lua.Slots:
		r.Fitted, r.Granted = 1, outcome
	case lua.Lease:
		if count < 5 {
			return 0
		}
		r.Fitted, r.Granted = 1, outcome
		r.Life = microseconds(number(4))
	case lua.Settle, lua.Extend:
		if count < 5 {
			return 0
		}
		r.decodeSettled(e, outcome, number(4))
		if n := len(e.joined); n > 0 {
			if len(text) < used+n+1 {
				return 0
			}
			r.outcomes = text[used : used+n+1]
			used += n + 1
		}
		return used
	default:
		r.Fitted = outcome
	}
	if r.Fitted >= e.count() {
		r.Status = Allowed
		return used
	}
	if count < 6 {
		return 0
	}
	r.RetryAfter = microseconds(number(4))
	r.NextAfter = microseconds(number(5))
	return used
}

// readInt reads an integer of so many bytes.
func readInt(text string, from, bytes int) (n int64) {
	for _, b := range []byte(text[from : from+bytes]) {
		n = n<<8 | int64(b)
	}
	return n
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
