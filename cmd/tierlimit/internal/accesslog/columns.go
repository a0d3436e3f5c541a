package accesslog

import (
	"bytes"
	"encoding/csv"
	"slices"
	"strings"
	"time"
)

// columns are the fields of lines below a header that names them. The format is CSV, or the W3C's
// format, which IIS and CloudFront write, or Zeek's, with tabs:
//
//	#Fields: date time c-ip cs-method cs-uri-stem
type columns struct {
	header    string
	names     []string
	separator string // "" means any white space
	inner     bool   // a column has lines of another log, and no other column is something to limit by
}

// The beginnings of headers of columns.
const (
	w3cHeader  = "#Fields:"
	zeekHeader = "#fields\t"
)

var (
	lineNames = []string{"line", "message", "@message", "log", "_raw", "content"}
	keyNames  = slices.Concat([]string{"key"}, hostNames, forwardedNames, userNames, pathNames)
)

// headerOf reads a header. ok is false if the line is not a header: a header names a time, and
// something to limit by.
func headerOf(line string) (c columns, ok bool) {
	for _, start := range []string{w3cHeader, zeekHeader} {
		if names, found := strings.CutPrefix(line, start); found {
			return columns{header: line, names: strings.Fields(names)}, true
		}
	}
	for _, separator := range []string{"\t", ",", ";", "|"} {
		c := columns{header: line, separator: separator}
		for _, name := range c.split(line) {
			c.names = append(c.names, columnName(name))
		}
		among := func(known []string) bool {
			return slices.ContainsFunc(c.names, func(name string) bool {
				return slices.ContainsFunc(known, func(other string) bool { return alike(name, other) })
			})
		}
		timed := slices.ContainsFunc(c.names, func(name string) bool { return slices.Contains(timeNames, name) })
		c.inner = !among(keyNames)
		if timed && (!c.inner || among(lineNames)) {
			return c, true
		}
	}
	return columns{}, false
}

// columnName returns a column's name in the form that fields use. People write names differently in
// CSV, and Azure adds the zone, or the type.
func columnName(s string) string {
	s = strings.TrimSuffix(strings.TrimSpace(s), " [UTC]")
	if slices.Contains(timeNames, s) {
		return s
	}
	return strings.TrimSuffix(strings.ReplaceAll(strings.ToLower(s), " ", "_"), "_s")
}

// split returns the values of a line.
func (c columns) split(line string) []string {
	switch {
	case c.separator == "" && strings.Contains(line, "\t"):
		return strings.Split(line, "\t")
	case c.separator == "":
		// IIS writes no quotes, but those of clients. Such a line has another number of quoted values.
		if strings.Contains(line, `"`) {
			if values := splitQuoted(line, ' '); len(values) == len(c.names) {
				return values
			}
		}
		return strings.Fields(line)
	case !strings.Contains(line, `"`):
		return strings.Split(line, c.separator)
	}
	return splitQuoted(line, rune(c.separator[0]))
}

func splitQuoted(line string, separator rune) []string {
	in := csv.NewReader(strings.NewReader(line))
	in.Comma, in.LazyQuotes = separator, true
	in.TrimLeadingSpace = separator == ',' || separator == ';' // in front of quotes
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
	if c.inner {
		text := strings.TrimSpace(of.text(lineNames...))
		if text == "" {
			return r, fault{what: noTime}, true
		}
		r, f = of.parseInner([]byte(text))
		return r, f, true
	}
	if inner, _ := innerLine(of); inner != nil {
		if r, f = of.parseInner(inner); f.what == "" && r.Host != "-" {
			return r, f, true
		}
	}
	r, f = of.request()
	if f.what == noJSONTime {
		f.what = noColumnTime
	}
	return r, f, true
}

// parseIIS reads IIS's own format, which has no header. Its time has no zone and is taken to be UTC:
//
//	10.0.0.1, user, 1/2/2006, 15:04:05, W3SVC1, server, 10.0.0.9, 15, received, sent, 200, 0, METHOD, path, query,
func parseIIS(line []byte) (Request, bool) {
	cells := strings.Split(string(line), ", ")
	if len(cells) < 15 || !addressIn([]byte(cells[0])).IsValid() {
		return Request{}, false
	}
	r := Request{Host: cells[0], User: cells[1], Status: int(max(0, min(999, digits([]byte(cells[10]))))), Bytes: max(0, digits([]byte(cells[9]))), Method: cells[12], Path: cells[13]}
	if r.User == "-" {
		r.User = ""
	}
	for _, layout := range []string{"1/2/2006 15:04:05", "1/2/06 15:04:05"} {
		at, err := time.Parse(layout, cells[2]+" "+cells[3])
		if r.Time = at; err == nil && at.Unix() >= 0 && at.Unix() < lastSecond {
			return r, true
		}
	}
	return Request{}, false
}

// parseTabs reads columns without a header that begin with a time and a client, as those of CloudFront's real-time logs:
//
//	1136214245.123	10.0.0.1	0.001	200	7	METHOD	https	www.example.org	path	…
func parseTabs(line []byte) (Request, bool) {
	cells := strings.Split(string(line), "\t")
	if len(cells) < 4 || !addressIn([]byte(cells[1])).IsValid() {
		return Request{}, false
	}
	at, ok := parseStamp(cells[0])
	r := Request{Time: at, Host: firstOf(cells[1])}
	for _, cell := range cells[2:] {
		switch {
		case r.Method == "" && isMethod(cell) && cell != "-":
			r.Method = cell
		case r.Path == "" && strings.HasPrefix(cell, "/"):
			r.Path = cell
		case r.Path == "" && strings.Contains(cell, " HTTP/"): // nginx's $request
			r.Method, r.Path = splitRequest(strings.Trim(cell, `"`))
		}
	}
	return r, ok
}

// isComment reports whether a line is a comment of the W3C's format, such as "#Version: 1.0".
func isComment(line []byte) bool { return bytes.HasPrefix(line, []byte("#")) }
