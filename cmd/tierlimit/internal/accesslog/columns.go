package accesslog

import (
	"bytes"
	"encoding/csv"
	"slices"
	"strings"
)

// columns are the fields of lines below a header that names them. The format is CSV, or the W3C's
// format, which IIS and CloudFront write:
//
//	#Fields: date time c-ip cs-method cs-uri-stem
type columns struct {
	header    string
	names     []string
	separator string // "" means any white space
}

// w3cHeader is the beginning of the W3C format's header of columns.
const w3cHeader = "#Fields:"

var (
	keyNames   = slices.Concat([]string{"key"}, hostNames, userNames, pathNames)
	knownNames = slices.Concat(timeNames, keyNames, methodNames, statusNames, bytesNames)
)

// headerOf reads a header. ok is false if the line is not a header: a header names a time, and
// something to limit by.
func headerOf(line string) (c columns, ok bool) {
	if names, w3c := strings.CutPrefix(line, w3cHeader); w3c {
		return columns{header: line, names: strings.Fields(names)}, true
	}
	for _, separator := range []string{"\t", ",", ";"} {
		c := columns{header: line, separator: separator}
		for _, name := range c.split(line) {
			c.names = append(c.names, columnName(name))
		}
		named := func(name string) bool { return slices.Contains(keyNames, name) }
		timed := func(name string) bool { return slices.Contains(timeNames, name) }
		if slices.ContainsFunc(c.names, timed) && slices.ContainsFunc(c.names, named) {
			return c, true
		}
	}
	return columns{}, false
}

// columnName returns a column's name in the form that fields use. People write names differently in
// CSV.
func columnName(s string) string {
	s = strings.TrimSpace(s)
	if slices.Contains(knownNames, s) {
		return s
	}
	return strings.ReplaceAll(strings.ToLower(s), " ", "_")
}

// split returns the values of a line.
func (c columns) split(line string) []string {
	switch {
	case c.separator == "" && strings.Contains(line, "\t"):
		return strings.Split(line, "\t")
	case c.separator == "":
		return strings.Fields(line)
	case !strings.Contains(line, `"`):
		return strings.Split(line, c.separator)
	}
	in := csv.NewReader(strings.NewReader(line))
	in.Comma, in.LazyQuotes = rune(c.separator[0]), true
	values, err := in.Read()
	if err != nil {
		return nil
	}
	return values
}

// parse reads a line below the header. ok is false if the line's number of columns differs from the
// header's.
func (c columns) parse(line []byte) (r Request, f fault, ok bool) {
	values := c.split(string(line))
	if len(values) != len(c.names) {
		return r, f, false
	}
	var room [32]field
	of := fields(room[:0])
	for i, name := range c.names {
		of = append(of, field{name: []byte(name), value: []byte(strings.TrimSpace(values[i])), plain: true})
	}
	if day, clock := of.text("date"), of.text("time"); day != "" {
		if at, whole := parseStamp(clock); !whole || at.Year() < 1980 { // combined with the time of day
			of = append(of, field{name: []byte("time"), value: []byte(day + "T" + clock), plain: true})
		}
	}
	r, f = of.request()
	if f.what == noJSONTime {
		f = fault{what: noColumnTime}
	}
	return r, f, true
}

// isComment reports whether a line is a comment of the W3C's format, such as "#Version: 1.0".
func isComment(line []byte) bool { return bytes.HasPrefix(line, []byte("#")) }
