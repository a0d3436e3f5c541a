package accesslog

import (
	"strconv"
	"strings"
)

// parseLogfmt reads names and values as written by Go's slog.TextHandler and others:
//
//	time=2006-01-02T15:04:05.123Z level=INFO msg="a request" ip=10.0.0.1 path=/a
func parseLogfmt(line []byte) (Request, bool) {
	var room [32]field
	of := fields(room[:0])
	for rest := string(line); rest != ""; rest = strings.TrimLeft(rest, " \t") {
		name, value, ok := strings.Cut(rest, "=")
		if !ok || name == "" || strings.ContainsAny(name, " \t\"") {
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
	r, f := of.request()
	return r, f.what == ""
}
