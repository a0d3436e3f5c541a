package accesslog

import (
	"bytes"
	"strings"
)

// The causes of a bad line, in the order of the line's fields.
const (
	noTime    = `neither a time and a key, nor JSON, nor a "[time]" followed by a quoted request`
	noFields  = "no host, ident and user in front of the time"
	noClosing = "the quoted request has no end"
	badStatus = "the status after the request is not three digits"
	noBytes   = "no byte count after the status"
	badBytes  = `the byte count is neither a number nor "-"`
)

// parse reads one line that is not empty.
//
// It relies on two places that clients cannot imitate, because servers escape the quotes that clients
// send: `] "` ends the time, and the request ends where a quote is followed by a status and a byte
// count.
func parse(line []byte) (Request, fault) {
	timeEnd := bytes.Index(line, []byte(`] "`))
	timeStart := bytes.LastIndexByte(line[:max(timeEnd, 0)], '[')
	if timeStart < 0 {
		return Request{}, fault{what: noTime}
	}
	host, ok := findHost(line[:timeStart])
	if !ok {
		return Request{}, fault{what: noFields, value: line[:timeStart]}
	}
	stamp, f := parseTime(line[timeStart+1 : timeEnd])
	if f.what != "" {
		return Request{}, f
	}
	if stamp.Unix() >= lastSecond {
		return Request{}, fault{tooLate, line[timeStart+1 : timeEnd]}
	}
	requestStart := timeEnd + len(`] "`)
	length, result, f := findEnd(line[requestStart:])
	if f.what != "" {
		return Request{}, f
	}

	// One string holds all parts of the request, without the agent and the rest of the line.
	text := string(line[:requestStart+length])
	from := text[host.from:host.to]
	if strings.HasPrefix(from, "[") || hasPort(line[host.from:host.to]) {
		from = withoutPort(from)
	}
	method, path := splitRequest(text[requestStart:])
	return Request{
		User:   user(text[:timeStart], host),
		Time:   stamp,
		Host:   from,
		Method: method,
		Path:   path,
		Status: result.status,
		Bytes:  result.bytes,
	}, fault{}
}

// user returns the authenticated user: everything after host and ident, because names may contain
// spaces.
func user(fields string, host span) string {
	_, name, _ := strings.Cut(strings.Trim(fields[host.to:], " "), " ")
	if name == "-" {
		return ""
	}
	return name
}

type span struct{ from, to int }

// findHost finds the host in "host ident user ". User names may contain spaces, so there can be more
// than three fields. If the first field looks like name:port, it is the virtual host of Apache's
// vhost_combined, and the host comes second. Also, syslog, journald or Docker may have put any number
// of fields in front.
func findHost(fields []byte) (span, bool) {
	spaces := bytes.Count(fields, []byte(" "))
	if spaces < 3 || fields[len(fields)-1] != ' ' {
		return span{}, false
	}
	host := span{0, bytes.IndexByte(fields, ' ')}
	if spaces > 3 && hasPort(fields[:host.to]) {
		host.from = host.to + 1
		host.to = host.from + bytes.IndexByte(fields[host.from:], ' ')
	} else if spaces > 3 && !bytes.HasPrefix(fields[host.to:], []byte(" - ")) {
		host = behindPrefix(fields, host)
	}
	return host, host.from < host.to
}

// behindPrefix returns the first field before an ident of "-" that looks like an address. Without one,
// it returns the first that may be a name, or otherwise first.
func behindPrefix(fields []byte, first span) span {
	found := first
	field := first
	for rest := first.to; rest < len(fields); rest = field.to {
		next := span{rest + 1, len(fields)}
		if space := bytes.IndexByte(fields[next.from:], ' '); space >= 0 {
			next.to = next.from + space
		}
		name := fields[field.from:field.to]
		if string(fields[next.from:min(next.to, len(fields))]) == "-" && len(name) > 0 && string(name) != "-" && name[len(name)-1] != ':' {
			if bytes.ContainsAny(name, ".:") {
				return field
			}
			if found == first {
				found = field
			}
		}
		field = next
	}
	return found
}

// hasPort reports whether a host is followed by a port. A bare IPv6 address is not, because it has more
// than one colon.
func hasPort(host []byte) bool {
	name, port, ok := bytes.Cut(host, []byte(":"))
	return ok && len(name) > 0 && digits(port) >= 0
}

// findEnd returns the length of the request, given everything that follows its opening quote, and the
// result that follows its closing quote.
//
// Today's servers write \" for a quote that the client sent. Old servers did not, and did not escape
// backslashes either. So if no unescaped quote fits, any quote that fits is taken.
func findEnd(rest []byte) (length int, r result, f fault) {
	escaped := false
	for i, c := range rest {
		switch {
		case escaped:
			escaped = false
		case c == '\\':
			escaped = true
		case c == '"':
			found, wrong := parseResult(rest[i+1:])
			if wrong.what == "" {
				return i, found, fault{}
			}
			if f.what == "" {
				f = wrong
			}
		}
	}
	for i, c := range rest {
		if c != '"' {
			continue
		}
		if found, wrong := parseResult(rest[i+1:]); wrong.what == "" {
			return i, found, fault{}
		}
	}
	if f.what == "" {
		f = fault{what: noClosing}
	}
	return 0, result{}, f
}

type result struct {
	status int
	bytes  int64
}

// parseResult reads " status bytes" and ignores what follows.
func parseResult(b []byte) (result, fault) {
	if len(b) == 0 || b[0] != ' ' {
		return result{}, fault{what: badStatus, value: b}
	}
	status, rest, hasBytes := bytes.Cut(b[1:], []byte(" "))
	var r result
	if string(status) != "-" {
		r.status = int(digits(status))
		if len(status) != 3 || r.status < 0 {
			return result{}, fault{what: badStatus, value: status}
		}
	}
	if !hasBytes {
		return result{}, fault{what: noBytes}
	}
	size, _, _ := bytes.Cut(rest, []byte(" "))
	if string(size) != "-" {
		r.bytes = digits(size)
		if r.bytes < 0 {
			return result{}, fault{what: badBytes, value: size}
		}
	}
	return r, fault{}
}

// digits reads a number of 1 to 18 decimal digits, which always fits into an int64. It returns -1 for
// anything else.
func digits(b []byte) int64 {
	if len(b) == 0 || len(b) > 18 {
		return -1
	}
	n := int64(0)
	for _, c := range b {
		if c < '0' || c > '9' {
			return -1
		}
		n = n*10 + int64(c-'0')
	}
	return n
}
