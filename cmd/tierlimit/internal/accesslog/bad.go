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
	// Unit is "line", or "object" if the log is an array of JSON objects.
	Unit string
	// Number is the line's number, counted from 1.
	Number int
	// Text is the beginning of the line, quoted. Logs contain text from clients, which may include
	// control sequences for the terminal on which the text is printed.
	Text string
	// Cause says what is wrong with the line.
	Cause string
}

// String returns a description for people.
func (b BadLine) String() string {
	return fmt.Sprintf("%s %d: %s, in %s", b.Unit, b.Number, b.Cause, b.Text)
}

// fault is what is wrong with a line; the zero fault means nothing is. It becomes a text only for the
// few bad lines that are kept, so that other bad lines cost nothing.
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
