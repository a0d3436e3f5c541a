package accesslog

import (
	"fmt"
	"regexp"
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

// refused are logs that people may take for logs of requests, by the beginnings of their lines.
var refused = []struct {
	start *regexp.Regexp
	cause string
}{
	{regexp.MustCompile(`^(?:version account-id |\d+ \d{12} eni-)`), "a flow log of Amazon's VPC, which counts the packets of minutes and not requests"},
	{regexp.MustCompile(`^\{"t":\{"\$date":`), "MongoDB's log, which has connections and slow operations and not all requests"},
	{regexp.MustCompile(`^\S+ \S+ \w+,(?:"[^"]*")?,(?:"[^"]*")?,\d+,`), "PostgreSQL's csvlog, whose columns have no names; its jsonlog can be read"},
}

// explained returns a fault of a line that says more than f, if the line is of a known kind.
func (f fault) explained(line []byte) fault {
	if m := wrapper.FindSubmatch(line); m != nil && (f.what == noJSONTime || f.what == tooLong) {
		return fault{what: fmt.Sprintf("the objects are inside another, which jq unpacks: jq -c '%s'", unpacking(string(m[1])))}
	}
	for _, log := range refused {
		if log.start.Match(line) {
			return fault{what: log.cause}
		}
	}
	return f
}
