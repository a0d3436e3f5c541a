package accesslog

import (
	"bytes"
	"io"
)

// Reader reads the requests of one log, in the order of its lines. It is not
// safe for concurrent use.
type Reader struct {
	lines lines
	empty int
	bad   int
	first []BadLine
}

// NewReader returns a Reader of the log in r, which is taken to be gzipped if
// it begins as a gzip does. The error is not nil if r cannot be read, if it
// begins like a gzip but is none, or if it begins like a file of another kind, such as zstd.
func NewReader(r io.Reader) (*Reader, error) {
	lines, err := openLines(r)
	if err != nil {
		return nil, err
	}
	return &Reader{lines: lines}, nil
}

// Read returns the next request, skipping lines that are empty or bad. At the
// end it returns io.EOF; any other error says why the rest could not be read
// (what came before it is valid). After an error, Read returns it again.
func (r *Reader) Read() (Request, error) {
	for {
		line, whole, err := r.lines.next()
		if err != nil {
			return Request{}, err
		}
		if !whole {
			r.countBad(line, fault{what: tooLong})
			continue
		}
		line = bytes.TrimRight(line, " \t\r")
		if len(line) == 0 {
			r.empty++
			continue
		}
		request, fault := parseAny(line)
		if fault.what == "" {
			return request, nil
		}
		r.countBad(line, fault)
	}
}

// Lines is how many lines have been read so far, of any kind.
func (r *Reader) Lines() int { return r.lines.read }

// BadLines is how many lines so far could not be read. Empty lines are not bad.
func (r *Reader) BadLines() int { return r.bad }

// FirstBad returns the first bad lines, at most three.
func (r *Reader) FirstBad() []BadLine { return append([]BadLine(nil), r.first...) }

func (r *Reader) countBad(line []byte, f fault) {
	r.bad++
	if len(r.first) < maxFirstBad {
		r.first = append(r.first, BadLine{Number: r.lines.read, Text: excerpt(line), Cause: f.String()})
	}
}
