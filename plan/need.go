package plan

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
)

// ErrUnmet means that no algorithm meets the need. Its text says which candidates come closest.
var ErrUnmet = errors.New("tierlimit: nothing meets the need")

// ErrInvalidNeed means that a need states something impossible, such as a negative tolerance, or a
// tolerance of wrong decisions without traffic to count them on.
var ErrInvalidNeed = errors.New("tierlimit: invalid need")

// Tolerance is how much of something is acceptable. The zero Tolerance states nothing.
type Tolerance struct {
	stated bool
	most   float64
}

// AtMost returns a Tolerance of up to a part of the whole: 0 for none, 0.05 for 5 %.
func AtMost(part float64) Tolerance { return Tolerance{stated: true, most: part} }

func (t Tolerance) allows(part float64) bool { return !t.stated || part <= t.most }

func (t Tolerance) valid() bool { return !t.stated || t.most >= 0 && !math.IsInf(t.most, 1) }

// Traffic counts wrong decisions on recorded requests. The package plan/traffic has an implementation,
// which simulates the decisions. A Traffic must be safe for concurrent use, and comparable with ==, as
// pointers are.
type Traffic interface {
	// Requests returns the number of requests.
	Requests() int
	// Wrong returns the part of the requests, 0 to 1, that a candidate decides otherwise than the exact
	// log.
	Wrong(Candidate) (float64, error)
}

// Need states what is required of a limit. It must state at least one thing. Needs are comparable with
// ==.
type Need struct {
	// Above is how far the proven worst case of any window may be above the limit, as a part of the
	// limit: 0 for never above it, 0.1 for a tenth.
	Above Tolerance

	// Late is how late capacity may return, as a part of the window, see [Candidate.Late]. If neither
	// Late nor Wrong is stated, Late is [DefaultLate]. Without that default, the cheapest candidate
	// that never exceeds a limit would be one that lets units through one by one, evenly spaced. State
	// AtMost(1) if you want that. From AtMost(0.5) on, the choice may be GCRA with a burst below the
	// limit. The burst is then the largest cost that fits.
	Late Tolerance

	// Wrong is the part of all requests of Traffic that may be decided otherwise than the exact log
	// would decide. Traffic is asked about one candidate after the other, the cheapest first. The
	// implementation in plan/traffic takes about a microsecond for each request and candidate. Its
	// result is no promise for other traffic.
	Wrong   Tolerance
	Traffic Traffic

	// Bytes is the most bytes of Redis's memory that a full key may take, see [Candidate.Full]; 0
	// allows any number.
	Bytes int64
	// BytesPerMillion is the most bytes that a million full keys may take; 0 allows any number.
	BytesPerMillion int64
	// NameBytes is the length of a key's name in Redis; 0 for [DefaultNameBytes].
	NameBytes int
}

// DefaultLate is how late capacity may return if a need does not say: a sixteenth of the window.
const DefaultLate = 1.0 / 16

// Stated reports whether the need states anything.
func (n Need) Stated() bool { return n != Need{NameBytes: n.NameBytes} }

// Validate returns nil, or an error that wraps [ErrInvalidNeed].
func (n Need) Validate() error {
	for _, t := range []struct {
		name      string
		tolerance Tolerance
	}{{"Above", n.Above}, {"Late", n.Late}, {"Wrong", n.Wrong}} {
		if !t.tolerance.valid() {
			return fmt.Errorf("%w: %s is at most %v, must be a fraction that is 0 or more", ErrInvalidNeed, t.name, t.tolerance.most)
		}
	}
	switch {
	case n.Traffic != nil && !reflect.ValueOf(n.Traffic).Comparable():
		// Comparing needs panics otherwise, for example when a rule is defined a second time.
		return fmt.Errorf("%w: Traffic is a %T, which cannot be compared with ==; use a pointer", ErrInvalidNeed, n.Traffic)
	case !n.Stated():
		return fmt.Errorf("%w: it states nothing: set Above, Late, Wrong, Bytes or BytesPerMillion", ErrInvalidNeed)
	case n.Wrong.stated && (n.Traffic == nil || n.Traffic.Requests() == 0):
		return fmt.Errorf("%w: Wrong is stated, but there is no Traffic to count wrong decisions on", ErrInvalidNeed)
	case n.Traffic != nil && !n.Wrong.stated:
		return fmt.Errorf("%w: there is Traffic, but Wrong does not say how much of it may be decided wrongly", ErrInvalidNeed)
	case n.Bytes < 0, n.BytesPerMillion < 0:
		return fmt.Errorf("%w: Bytes is %d and BytesPerMillion is %d, must not be negative", ErrInvalidNeed, n.Bytes, n.BytesPerMillion)
	case n.NameBytes < 0:
		return fmt.Errorf("%w: NameBytes is %d, must not be negative", ErrInvalidNeed, n.NameBytes)
	}
	return nil
}

// late returns the tolerance of lateness that applies.
func (n Need) late() Tolerance {
	if !n.Late.stated && !n.Wrong.stated {
		return AtMost(DefaultLate)
	}
	return n.Late
}

// bytes returns the budget of a key in bytes, 0 for none.
func (n Need) bytes() int64 {
	if n.BytesPerMillion == 0 {
		return n.Bytes
	}
	perKey := max(1, n.BytesPerMillion/1_000_000) // even less than a byte per key is a budget
	return min(perKey, cmp.Or(n.Bytes, perKey))
}

// onlyMemory reports whether the need states nothing but memory. Then the most exact candidate within
// the budget is wanted, not the cheapest.
func (n Need) onlyMemory() bool { return !n.Above.stated && !n.Late.stated && !n.Wrong.stated }

// String returns the need in words: "at most 10 % above the limit, at most 5 % of the window late".
func (n Need) String() string {
	var parts []string
	add := func(t Tolerance, none, some string) {
		switch {
		case !t.stated:
		case t.most == 0:
			parts = append(parts, none)
		default:
			parts = append(parts, "at most "+percent(t.most)+some)
		}
	}
	add(n.Above, "never above the limit", " above the limit")
	add(n.late(), "no capacity returned late", " of the window late")
	add(n.Wrong, "no wrong decision on the given traffic", " wrong decisions on the given traffic")
	if budget := n.bytes(); budget > 0 {
		parts = append(parts, fmt.Sprintf("at most %d bytes a key", budget))
	}
	return strings.Join(parts, ", ")
}

// percent formats a part for people, with up to three significant digits.
func percent(part float64) string {
	if part == 0 {
		return "0 %"
	}
	text := fmt.Sprintf("%.3g", part*100)
	if part >= 1 {
		text = fmt.Sprintf("%.0f", part*100)
	}
	return text + " %"
}
