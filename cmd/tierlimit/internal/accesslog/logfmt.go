package accesslog

import (
	"strconv"
	"strings"
)

// parseLogfmt reads names and values as written by Go's slog.TextHandler and others:
//
//	time=2006-01-02T15:04:05.123Z level=INFO msg="a request" ip=10.0.0.1 path=/a
//
// Words may stand in front, such as a prefix of Kubernetes. If the values have no time, but a path, the
// words have the time, as in the lines of Heroku's router and of lograge for Rails.
func parseLogfmt(line []byte) (Request, bool) {
	front, pairs := splitLogfmt(string(line))
	var room [32]field
	of := fields(room[:0])
	for rest := pairs; rest != ""; rest = strings.TrimLeft(rest, " \t") {
		name, value, ok := strings.Cut(rest, "=")
		if !ok || !isName(name) {
			return Request{}, false
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
	if _, timed := of.time(); !timed && of.text(pathNames...) != "" {
		of = append(of, field{name: []byte("time"), value: []byte(stampIn(front)), plain: true})
	}
	r, f := of.request()
	return r, f.what == ""
}

// splitLogfmt splits a line in front of its first name and value.
func splitLogfmt(line string) (front, pairs string) {
	equals := strings.IndexByte(line, '=')
	if equals < 0 {
		return line, ""
	}
	start := strings.LastIndexAny(line[:equals], " \t") + 1
	return line[:start], line[start:]
}

func isName(s string) bool { return s != "" && !strings.ContainsAny(s, " \t\"") }

// stampIn returns the first date and time of day among words, with the zone behind it, or "".
func stampIn(front string) string {
	words := strings.Fields(front)
	for i, word := range words {
		if !strings.ContainsAny(word, "-/") { // no date
			continue
		}
		stamp := ""
		for n := i + 1; n <= min(i+3, len(words)); n++ {
			text := strings.TrimLeft(strings.Join(words[i:n], " "), "[")
			for _, text := range []string{text, strings.TrimRight(text, "]:,")} {
				if isStamp([]byte(text)) {
					stamp = text
				}
			}
		}
		if stamp != "" {
			return stamp
		}
	}
	return ""
}
