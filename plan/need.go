package plan

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// ErrUnmet: no algorithm meets the need. Its text says what comes closest.
var ErrUnmet = errors.New("tierlimit: nothing meets the need")

// ErrInvalidNeed: a need states something that cannot be: a negative tolerance, a
// tolerance of wrong decisions without traffic to count them on.
var ErrInvalidNeed = errors.New("tierlimit: invalid need")

// Tolerance is how much of something is acceptable. The zero Tolerance is: nothing
// stated.
type Tolerance struct {
	stated bool
	most   float64
}

// AtMost tolerates up to a part of the whole: 0 for none, 0.05 for 5 %.
func AtMost(part float64) Tolerance { return Tolerance{stated: true, most: part} }

func (t Tolerance) allows(part float64) bool { return !t.stated || part <= t.most }

func (t Tolerance) valid() bool { return !t.stated || t.most >= 0 && !math.IsInf(t.most, 1) }

// Traffic counts wrong decisions on recorded requests. Make one with the package
// plan/traffic, which simulates them. It must be safe for concurrent use, and
// comparable with ==, as pointers are.
type Traffic interface {
	// Requests returns the number of requests.
	Requests() int
	// Wrong returns the part of the requests, 0 to 1, that a candidate decides unlike
	// the exact log.
	Wrong(Candidate) (float64, error)
}

// Need is what is needed of a limit. State at least one thing. Needs are comparable
// with ==.
type Need struct {
	// Above is how far the worst case of any window may be above the limit, as a part
	// of the limit, proven: 0 for never above it, 0.1 for a tenth.
	Above Tolerance

	// Late is how late capacity may return, as a part of the window, see
	// [Candidate.Late]. If neither it nor Wrong is stated, it is [DefaultLate]: otherwise
	// the cheapest that never passes a limit would be one that lets units through one
	// by one, evenly spaced. Say AtMost(1) for that. From a half on the choice may be GCRA
	// with a burst below the limit, which is then the largest cost that fits.
	Late Tolerance

	// Wrong is the part of all requests of Traffic that may be decided unlike the exact
	// log would. Traffic is asked about one candidate after the other, the cheapest
	// first; one of plan/traffic takes about a microsecond for each request and
	// candidate. What it finds is no promise for other traffic.
	Wrong   Tolerance
	Traffic Traffic

	// Bytes is the most bytes of Redis's memory that a key may take when full, see
	// [Candidate.Full]; 0 for any.
	Bytes int64
	// BytesPerMillion is the same for a million keys; 0 for any.
	BytesPerMillion int64
	// NameBytes is the length of a key's name in Redis; 0 for [DefaultNameBytes].
	NameBytes int
}

// DefaultLate is how late capacity may return where a need does not say: a sixteenth
// of the window.
const DefaultLate = 1.0 / 16

// Stated reports whether anything is needed.
func (n Need) Stated() bool { return n != Need{NameBytes: n.NameBytes} }

// Validate returns nil, or an error that wraps [ErrInvalidNeed].
func (n Need) Validate() error {
	for _, t := range []struct {
		name      string
		tolerance Tolerance
	}{{"Above", n.Above}, {"Late", n.Late}, {"Wrong", n.Wrong}} {
		if !t.tolerance.valid() {
			return fmt.Errorf("%w: %s is at most %v, must be a part of the whole, 0 or more", ErrInvalidNeed, t.name, t.tolerance.most)
		}
	}
	switch {
	case !n.Stated():
		return fmt.Errorf("%w: it states nothing: set Above, Late, Wrong, Bytes or BytesPerMillion", ErrInvalidNeed)
	case n.Wrong.stated && (n.Traffic == nil || n.Traffic.Requests() == 0):
		return fmt.Errorf("%w: Wrong is stated, but there is no Traffic to count wrong decisions on", ErrInvalidNeed)
	case n.Traffic != nil && !n.Wrong.stated:
		return fmt.Errorf("%w: there is Traffic, but Wrong does not say how much of it may be decided wrongly", ErrInvalidNeed)
	case n.Bytes < 0, n.BytesPerMillion < 0:
		return fmt.Errorf("%w: memory of %d bytes a key, %d a million keys: must not be negative", ErrInvalidNeed, n.Bytes, n.BytesPerMillion)
	case n.NameBytes < 0:
		return fmt.Errorf("%w: names of %d bytes, must not be negative", ErrInvalidNeed, n.NameBytes)
	}
	return nil
}

// late is the tolerance in force.
func (n Need) late() Tolerance {
	if !n.Late.stated && !n.Wrong.stated {
		return AtMost(DefaultLate)
	}
	return n.Late
}

// bytes is the budget of a key, 0 for none.
func (n Need) bytes() int64 {
	perKey := n.BytesPerMillion / 1_000_000
	switch {
	case n.BytesPerMillion == 0:
		return n.Bytes
	case n.Bytes == 0:
		return max(1, perKey) // less than a byte a key is a budget, too
	}
	return min(n.Bytes, max(1, perKey))
}

// onlyMemory reports whether nothing but memory is stated: then the most exact that
// fits is wanted, not the cheapest.
func (n Need) onlyMemory() bool { return !n.Above.stated && !n.Late.stated && !n.Wrong.stated }

// String is the need in words: "at most 10 % above the limit, at most
// 5 % of the window late".
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

// percent is a part as people read it, with up to three digits that count.
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
