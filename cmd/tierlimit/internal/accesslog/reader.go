package accesslog

import (
	"bytes"
	"io"
	"regexp"
	"slices"
)

// Reader reads the requests of one log, in the order of its lines. It is not
// safe for concurrent use.
type Reader struct {
	lines   lines
	columns *columns // for the lines below their header; nil if there is none
	empty   int      // empty lines and headers
	bad     int
	first   []BadLine
	causes  []string // of first, without the values that they name
}

// NewReader returns a Reader of the log in r, which is taken to be gzipped if it begins like a gzip
// file. It returns an error if r cannot be read, if it begins like a gzip file but is not one, or if it
// begins like a file of another kind, such as zstd.
func NewReader(r io.Reader) (*Reader, error) {
	lines, err := openLines(r)
	if err != nil {
		return nil, err
	}
	return &Reader{lines: lines}, nil
}

// Read returns the next request, and skips lines that are empty or bad. At the end it returns io.EOF.
// Any other error says why the rest could not be read; the requests returned before are valid. After an
// error, Read returns the same error again.
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
		// If the log was joined from several files, their byte order marks are inside it.
		untrimmed := bytes.TrimPrefix(bytes.TrimRight(line, "\r"), []byte(byteOrderMark))
		untrimmed = bytes.TrimLeft(untrimmed, "\x00") // left by a file that was truncated while its server went on writing
		line = bytes.TrimRight(untrimmed, " \t\r")
		if len(line) == 0 {
			r.empty++
			continue
		}
		if r.isHeader(line) {
			r.empty++
			continue
		}
		if line[0] == '<' { // RFC 5424 has a byte order mark in front of a message in UTF-8
			line = bytes.Replace(line, []byte(" "+byteOrderMark), []byte(" "), 1)
		}
		request, fault := r.parse(line, untrimmed)
		if fault.what == "" {
			return request, nil
		}
		r.countBad(line, fault)
	}
}

// isHeader reports whether a line describes other lines and is no request itself. A header may occur
// again if logs were joined.
func (r *Reader) isHeader(line []byte) bool {
	if isComment(line) && !bytes.HasPrefix(line, []byte(w3cHeader)) && !bytes.HasPrefix(line, []byte(zeekHeader)) {
		return true
	}
	first := r.columns == nil && r.lines.read-r.empty == 1
	if !first && !isComment(line) && (r.columns == nil || string(line) != r.columns.header) {
		return false
	}
	columns, ok := headerOf(string(line))
	if ok {
		r.columns = &columns
	}
	return ok
}

// parse reads a line. untrimmed still has the tabs at its end, behind which empty columns may be.
func (r *Reader) parse(line, untrimmed []byte) (Request, fault) {
	if r.columns != nil {
		for _, all := range [][]byte{line, untrimmed} {
			if request, fault, ok := r.columns.parse(all); ok {
				return request, fault
			}
		}
	}
	request, f := parseAny(line)
	if f.what == noTime && r.columns != nil {
		f = fault{what: badColumns}
	}
	return request, f
}

// Unit returns what the log consists of: "line", or "object" if it is an array of JSON
// objects.
func (r *Reader) Unit() string {
	if r.lines.objects {
		return "object"
	}
	return "line"
}

// Lines returns the number of lines, or objects, read so far, whether good, bad or empty.
func (r *Reader) Lines() int { return r.lines.read }

// BadLines returns the number of lines so far that could not be read. Empty lines are not bad.
func (r *Reader) BadLines() int { return r.bad }

// FirstBad returns the first bad lines, at most three, and of as many causes as there are.
func (r *Reader) FirstBad() []BadLine { return append([]BadLine(nil), r.first...) }

// wrapper is the beginning of an object that contains others in an array.
var wrapper = regexp.MustCompile(`^\s*\{(?:\s*"[^"]*"\s*:\s*(?:"[^"]*"|[\w.+-]+)\s*,)*\s*"(\w+)"\s*:\s*\[\s*\{`)

// unpacking returns the filter for jq that makes lines of the objects in the named array. OpenTelemetry's collector
// nests them deeper, and has a list of names and values where others have an object.
func unpacking(array string) string {
	if array == "resourceLogs" {
		return ".resourceLogs[].scopeLogs[].logRecords[] | {time: (.timeUnixNano // .observedTimeUnixNano), message: .body.stringValue}" +
			" + ((.attributes // []) | map({(.key): (.value | (.stringValue // .intValue))}) | add)"
	}
	return "." + array + "[]"
}

func (r *Reader) countBad(line []byte, f fault) {
	r.bad++
	if len(r.first) == maxFirstBad {
		r.makeRoom(f)
	}
	if len(r.first) < maxFirstBad {
		r.first = append(r.first, BadLine{Unit: r.Unit(), Number: r.lines.read, Text: excerpt(line), Cause: f.explained(line).String()})
		r.causes = append(r.causes, f.what)
	}
}

// makeRoom drops the last of the first bad lines that has the cause of another, if no line of the cause of f is kept.
// Otherwise what a program writes when it starts would hide why its requests cannot be read.
func (r *Reader) makeRoom(f fault) {
	if slices.Contains(r.causes, f.what) {
		return
	}
	for i, cause := range slices.Backward(r.causes) {
		if slices.Contains(r.causes[:i], cause) {
			r.first, r.causes = slices.Delete(r.first, i, i+1), slices.Delete(r.causes, i, i+1)
			return
		}
	}
}
