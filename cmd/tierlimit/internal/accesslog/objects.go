package accesslog

import (
	"bytes"
	"errors"
	"io"
	"strings"
)

// holdsObjects reports whether a log is an array of JSON objects, or a sequence of objects that span
// several lines each, or follow one another without a line end, as Amazon's Firehose writes them. It decides by the
// log's beginning.
func holdsObjects(start []byte) bool {
	rest := bytes.TrimLeft(start, " \t\r\n")
	if len(rest) == 0 {
		return false
	}
	inside := bytes.TrimLeft(rest[1:], " \t\r\n")
	switch rest[0] {
	case '[':
		return len(inside) > 0 && inside[0] == '{'
	case '{':
		space := rest[1 : len(rest)-len(inside)]
		line, _, _ := bytes.Cut(rest, []byte("\n"))
		return bytes.IndexByte(space, '\n') >= 0 && len(inside) > 0 && inside[0] == '"' || bytes.Contains(line, []byte(`}{"`))
	}
	return false
}

// nextObject does what next does, for logs that consist of objects instead of lines. It skips the brackets and commas
// of an array. Other text at the beginning of a line is a line: a program may write lines below an object, and an array
// may be joined with another log.
func (l *lines) nextObject() (object []byte, whole bool, err error) {
	l.object = l.object[:0]
	depth, quoted, escaped, length := 0, false, false, 0
	for {
		c, err := l.in.ReadByte()
		switch {
		case errors.Is(err, io.EOF) && length > 0: // the object was cut off
			l.read++
			l.err = io.EOF
			return l.object, length <= maxLine, nil
		case err != nil:
			l.err = l.explain(err)
			return nil, false, l.err
		case depth == 0 && c != '{':
			if l.begins = l.begins || c == '\n'; l.begins && c > 0 && c < 0x80 && strings.IndexByte(" \t\r\n,[]}\"", c) < 0 {
				_ = l.in.UnreadByte() // cannot fail: c was just read
				return l.nextLine()
			}
			continue
		}
		if length++; length <= maxLine {
			l.object = append(l.object, c)
		}
		switch {
		case escaped:
			escaped = false
		case quoted && c == '\\':
			escaped = true
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{':
			depth++
			l.begins = false
		case c == '}':
			depth--
		}
		if depth == 0 || quoted && c == '\n' { // a string has no line end: it was not closed, and the next object begins anew
			l.read++
			return l.object, length <= maxLine, nil
		}
	}
}
