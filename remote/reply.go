package remote

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/tierlimit/tierlimit/gcra"
	"github.com/tierlimit/tierlimit/lua"
)

// Status is the outcome of an entry.
type Status int8

const (
	// Denied means that the cost does not fit now. Nothing was charged.
	Denied Status = iota
	// Allowed means that the cost fitted and was charged.
	Allowed
	// Expired means that the entry arrived after its not-after. Nothing was charged.
	Expired
	// Unreadable means that this version cannot read the key's value: it is of another type,
	// damaged, or in an encoding of a later version. Nothing was charged.
	Unreadable
	// HeldBack means that the cost fits, but another entry of the group does not. Nothing was
	// charged.
	HeldBack
)

// Reply answers one entry.
type Reply struct {
	// Status is Allowed only if all of the entry's count were.
	Status Status
	// Fitted is how many of the count were allowed.
	Fitted int64
	// Granted is the number of units charged, refunded, or leased. For a Settle it is the number given back or
	// charged in addition. For a Charge it is the number of units that still count, or 0 if the charge was made
	// before. For Slots it is the number of units that the process was known to hold before.
	Granted int64
	// Remaining is the number of units still free.
	Remaining int64
	// RetryAfter is the time until the same cost fits. NextAfter is the time until a single unit fits, if none
	// does now. ResetAfter is the time until the key is as if it had never been used. Of a limit of
	// limit.Concurrent, the first two are the time for which no unit comes back unless a process releases it.
	RetryAfter, NextAfter, ResetAfter time.Duration
	// Life is how long a lease may be spent, counted from before the request; or how long an
	// extended hold lasts.
	Life time.Duration
	// Clock is the deciding server's clock, in µs; Stamp is the key's own time.
	Clock, Stamp int64
	// Err is set if the entry's part of a batch failed. The other fields are then meaningless.
	Err error

	outcomes string // of a Settle with a count: one byte for each settlement
	units    int64  // of a Hold with a count, if all holds were made: their units in total
	// of a Hold with a count, if not all were made: a reply for each. The fields above are then meaningless. It is a
	// pointer so that replies can be compared.
	apart *[]Reply
}

// partOf returns the answer to one of the calls that share an entry. The answers equal those to calls made one by
// one, except that ResetAfter is that of the last call.
func (r *Reply) partOf(c *call) Reply {
	own, e, place := *r, &c.entry, int64(c.place)
	switch {
	case e.releases():
		own.Granted = min(max(0, r.Granted-c.before), e.Cost)
	case r.Err != nil || r.Status > Allowed: // nothing to share
	case e.Operation == lua.Take:
		own.Fitted = min(max(0, r.Fitted-place), e.count())
		own.Granted = own.Fitted * e.Cost
		if own.Fitted == e.count() {
			own.Status = Allowed
			own.Remaining = r.Remaining + (r.Fitted-place-own.Fitted)*e.Cost
			own.RetryAfter, own.NextAfter = 0, 0
		}
	case e.Operation == lua.Hold && r.units > 0:
		own.Fitted, own.Granted, own.units = 1, e.Cost, 0
		own.Remaining = r.Remaining + r.units - c.before - e.Cost
	case e.Operation == lua.Settle && r.outcomes != "":
		own.settled(int64(r.outcomes[place]))
		own.Granted, own.outcomes = 0, "" // the reply has only the sum of units given back or charged
	}
	return own
}

var errReply = errors.New("the script's reply does not have the expected form")

// The lengths of answers, in bytes.
const (
	timeBytes      = 7
	gcraBytes      = 34
	gcraPartsBytes = 40
	fixedBytes     = 28
	ringBytes      = 38 // without slots
)

// decode decodes the answer of a run of the script into the replies of its entries; frame.lua
// describes the format.
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
		return fmt.Errorf("%w: %d bytes are left over after %d entries", errReply, len(rest), len(entries))
	}
	clock := readInt(rest, 0, timeBytes)
	for i := range replies {
		r := &replies[i]
		r.Clock = clock
		r.Stamp += clock
		for j := range r.each() {
			r.each()[j].Clock = clock
			r.each()[j].Stamp += clock
		}
	}
	return nil
}

// decode decodes the answer to one entry. It returns the answer's length in bytes, or 0 if it is invalid. If
// the answer is the key's new state, the time of its newest charge is the current time.
func (r *Reply) decode(e *Entry, text string) (used int) {
	*r = Reply{}
	if len(text) == 0 {
		return 0
	}
	kind := text[0]
	if kind == lua.AnswerNumbers {
		used = r.decodeNumbers(e, text)
		if e.Operation == lua.Hold && len(e.joined) > 0 && r.Fitted < e.count() {
			used = r.decodeApart(e, text)
		}
		return used
	}
	if kind == lua.AnswerChargedMore && e.Operation == lua.Settle && len(text) > 1+timeBytes && text[1+timeBytes] != kind {
		used = r.decode(e, text[1+timeBytes:])
		r.Granted = readInt(text, 1, timeBytes)
		if used > 0 {
			used += 1 + timeBytes
		}
		return used
	}
	// All other answers are those of the fast path, and say that all was allowed.
	r.Status, r.Fitted = Allowed, e.count()
	r.granted(e)
	switch {
	case kind == lua.AnswerAllowed && len(text) >= 1+2*timeBytes:
		r.Remaining = readInt(text, 1, timeBytes)
		r.ResetAfter = microseconds(readInt(text, 1+timeBytes, timeBytes))
		return 1 + 2*timeBytes
	case kind == lua.TagGCRA && len(text) >= gcraBytes && e.Rule.isGCRA():
		r.decodeGCRA(e, text, 0)
		return gcraBytes
	case kind == lua.AnswerWithParts && len(text) > gcraPartsBytes && e.Rule.isGCRA():
		r.decodeGCRA(e, text[1:], readInt(text, 1+gcraBytes, gcraPartsBytes-gcraBytes))
		return 1 + gcraPartsBytes
	case kind == lua.TagFixedWindow && len(text) >= fixedBytes:
		r.Clock = readInt(text, 1, timeBytes)
		r.Remaining = e.Rule.quota - readInt(text, fixedBytes-6, 6)
		r.ResetAfter = microseconds(max(0, readInt(text, 15, timeBytes)-r.Clock))
		return fixedBytes
	case (kind == lua.TagLog || kind == lua.TagLongLog) && len(text) >= ringBytes:
		r.Clock = readInt(text, 1, timeBytes)
		r.Remaining = e.Rule.quota - readInt(text, ringBytes-4, 4)
		r.ResetAfter = e.Rule.window
		return ringBytes
	}
	return 0
}

// granted computes the number of units from the number of decisions that fitted.
func (r *Reply) granted(e *Entry) {
	r.Granted = r.Fitted * e.Cost
	if e.Operation == lua.Hold && e.count() > 1 { // the holds' costs differ
		r.Granted, r.units = e.Cost, e.Cost
	}
}

// decodeGCRA decodes a GCRA state: a header (15 bytes) and the arrival time (7).
func (r *Reply) decodeGCRA(e *Entry, state string, part int64) {
	now := readInt(state, 1, timeBytes)
	s := gcra.State{TAT: readInt(state, 15, timeBytes), Part: part}
	r.Clock = now
	r.Remaining, r.ResetAfter = e.Rule.rate.Free(s, now), microseconds(e.Rule.rate.Reset(s, now))
}

// decodeNumbers decodes an answer that consists of numbers.
func (r *Reply) decodeNumbers(e *Entry, text string) (used int) {
	if len(text) < 2 {
		return 0
	}
	count := int(text[1])
	used = 2 + count*timeBytes
	if len(text) < used || count == 0 {
		return 0
	}
	number := func(i int) int64 { return readInt(text, 2+i*timeBytes, timeBytes) }
	outcome := number(0) - lua.OutcomeOffset
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
	if outcome < 0 && outcome != lua.HeldBack || outcome > e.mostOutcome() {
		return 0
	}
	r.Remaining = number(1)
	r.ResetAfter = microseconds(number(2))
	r.Stamp = number(3) // how far the key's own time is ahead of the clock; decode adds the clock
	if outcome == lua.HeldBack {
		r.Status = HeldBack
		return used
	}

	switch e.Operation {
	case lua.Take, lua.Hold:
		r.Fitted = outcome
		r.granted(e)
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
		return r.decodeSettled(e, text, used, outcome, number(4))
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

// mostOutcome returns the largest outcome that an answer to the entry can have. Callers rely on it: they make room for
// as many decisions, or slots.
func (e *Entry) mostOutcome() int64 {
	switch e.Operation {
	case lua.Take, lua.Hold, lua.Peek:
		return e.count()
	case lua.TakeUpTo, lua.HoldUpTo, lua.Refund, lua.Lease:
		return e.Cost
	}
	return math.MaxInt64
}

// decodeSettled decodes the rest of an answer to a Settle or an Extend, whose numbers take used bytes. last is the
// number of units given back or charged, or how long the hold lasts.
func (r *Reply) decodeSettled(e *Entry, text string, used int, outcome, last int64) int {
	if r.settled(outcome); e.Operation == lua.Settle {
		r.Granted = last
	} else {
		r.Life = microseconds(last)
	}
	if n := len(e.joined); n > 0 {
		if len(text) < used+n {
			return 0
		}
		r.outcomes = text[used : used+n]
		used += n
	}
	return used
}

// readInt reads an integer of the given number of bytes.
func readInt(text string, from, bytes int) (n int64) {
	for _, b := range []byte(text[from : from+bytes]) {
		n = n<<8 | int64(b)
	}
	return n
}

// microseconds converts a number of an answer. Seven bytes can hold more than a duration can.
func microseconds(n int64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/int64(time.Microsecond))) * time.Microsecond
}
