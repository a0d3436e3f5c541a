package accesslog

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// parseLogfmt reads names and values as written by Go's slog.TextHandler and others:
//
//	time=2006-01-02T15:04:05.123Z level=INFO msg="a request" ip=10.0.0.1 path=/a
//
// Words may stand in front, such as a prefix of Kubernetes. If the values have no time, the words have it, as in
// the lines of Heroku's router, of lograge for Rails, and of slog without a handler.
func parseLogfmt(line []byte) (Request, fault) {
	front, pairs := splitLogfmt(string(line))
	var room [32]field
	of := fields(room[:0])
	for rest := pairs; rest != ""; rest = strings.TrimLeft(rest, " \t") {
		name, value, ok := strings.Cut(rest, "=")
		if !ok || !isName(name) {
			if last := len(of) - 1; last >= 0 && slices.Contains(timeNames, string(of[last].name)) { // a time without quotes
				word, behind, _ := strings.Cut(rest, " ")
				of[last].value, rest = slices.Concat(of[last].value, []byte(" "), []byte(word)), behind
				continue
			}
			return Request{}, fault{what: noTime}
		}
		if quoted, err := strconv.QuotedPrefix(value); err == nil && quoted[0] == '"' {
			rest = value[len(quoted):]
			value, _ = strconv.Unquote(quoted) // cannot fail: quoted is a quoted string
		} else {
			end := strings.IndexAny(value, " \t")
			if end < 0 {
				end = len(value)
			}
			value, rest = value[:end], value[end:]
		}
		of = append(of, field{name: []byte(name), value: []byte(value), plain: true})
	}
	if _, timed := of.time(); !timed {
		return of.requestBehind(front)
	}
	return of.request()
}

// requestBehind returns the request of fields that have no time, which is in the words in front of them. Words in
// front of a time are of anything, so the fields must name a path or a client.
func (f fields) requestBehind(front string) (Request, fault) {
	if f.text(pathNames...) == "" && f.text(clientNames...) == "" {
		if f.text(messageNames...) != "" {
			return Request{}, fault{what: noRequest}
		}
		return Request{}, fault{what: noJSONTime}
	}
	stamp := stampIn(front)
	if stamp == "" {
		return Request{}, fault{noStamp, f.unreadTime()}
	}
	return append(f, field{name: []byte("time"), value: []byte(stamp), plain: true}).request()
}

// splitLogfmt splits a line in front of its first name and value.
func splitLogfmt(line string) (front, pairs string) {
	equals := strings.IndexByte(line, '=')
	if equals < 0 {
		return line, ""
	}
	start := strings.LastIndexAny(line[:equals], " \t:") + 1 // the colon is grep's
	return line[:start], line[start:]
}

func isName(s string) bool { return s != "" && !strings.ContainsAny(s, " \t\"") }

// beginsNamed reports whether a word is the name of a weekday or a month, with which the times of C and HTTP begin.
func beginsNamed(word string) bool {
	name := []byte(strings.TrimSuffix(word, ","))
	return len(name) == 3 && (parseMonth(name) != 0 || slices.Contains(weekdays, string(name)))
}

var weekdays = []string{"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"}

// isOtherStamp reports whether a text is a time as web servers, C or HTTP write it.
func isOtherStamp(text string) bool {
	if len(text) < len("02/Jan/2006:15:04:05") || text[2] != '/' && !beginsNamed(text[:3]) {
		return false
	}
	_, ok := parseStamp(text)
	return ok
}

// stampIn returns the first date and time of day among words, with the zone behind it, or "".
func stampIn(front string) string {
	first, _ := stampsIn(front)
	return first
}

// stampsIn is like stampIn, and also returns the last one.
func stampsIn(front string) (first, last string) {
	words := strings.Fields(front)
	for i, word := range words {
		most := 3
		switch {
		case beginsNamed(strings.TrimLeft(word, "[|")):
			most = 6
		case !strings.ContainsAny(word, "-/"): // no date
			continue
		}
		stamp := ""
		for n := i + 1; n <= min(i+most, len(words)); n++ {
			text := strings.TrimLeft(strings.Join(words[i:n], " "), "[|")
			for _, text := range []string{text, strings.TrimRight(text, "]:,")} {
				if isStamp([]byte(text)) || isOtherStamp(text) {
					stamp = text
				}
			}
		}
		if stamp != "" {
			first, last = cmp.Or(first, stamp), stamp
		}
	}
	return first, last
}
