package accesslog

import (
	"fmt"
	"strconv"
)

const (
	maxFirstBad = 3
	maxExcerpt  = 100
)

// BadLine is a line that could not be read.
type BadLine struct {
	// Unit is "line", or "object" of a log that is an array of JSON.
	Unit string
	// Number is the line's number, counted from 1.
	Number int
	// Text is how the line begins, quoted: logs hold what clients sent, which
	// may be meant for the terminal it is printed on.
	Text string
	// Cause says what was wrong with it.
	Cause string
}

// String is for people.
func (b BadLine) String() string {
	return fmt.Sprintf("%s %d: %s, in %s", b.Unit, b.Number, b.Cause, b.Text)
}

// fault is what is wrong with a line; the zero fault is nothing. It becomes a
// text only for the few lines that are kept, so that bad lines cost nothing.
type fault struct {
	what  string
	value []byte
}

func (f fault) String() string {
	if f.value == nil {
		return f.what
	}
	return f.what + ": " + excerpt(f.value)
}

func excerpt(b []byte) string {
	if len(b) <= maxExcerpt {
		return strconv.Quote(string(b))
	}
	return strconv.Quote(string(b[:maxExcerpt])) + "..."
}
