package accesslog

import (
	"bytes"
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"
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
func parse(line []byte) (Request, fault) { return parseWith(parseTime, line) }

// parseWith is like parse, with a function that reads the time.
func parseWith(timeOf func([]byte) (time.Time, fault), line []byte) (Request, fault) {
	if rest, ok := bytes.CutPrefix(line, []byte("INFO:")); ok { // Python's logging adds the logger's name and a colon, too
		if name, request, ok := bytes.Cut(rest, []byte(":")); ok && !bytes.Contains(name, []byte(" ")) {
			line = request
		}
	}
	timeEnd := bytes.Index(line, []byte(`] "`))
	timeStart := bytes.LastIndexByte(line[:max(timeEnd, 0)], '[')
	if timeStart < 0 {
		return Request{}, fault{what: noTime}
	}
	host, ident, ok := findHost(line[:timeStart])
	if !ok {
		return Request{}, fault{what: noFields, value: line[:timeStart]}
	}
	stamp, f := timeOf(line[timeStart+1 : timeEnd])
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
	if strings.ContainsAny(from, `",`) {
		if from = withoutFile(cmp.Or(firstOf(from), from)); isStamp([]byte(from)) { // CSV without a header, in which the line is quoted
			return Request{}, fault{what: noFields, value: line[:timeStart]}
		}
	} else if _, behind, ok := strings.Cut(from, "]"); ok && addressIn([]byte(behind)).IsValid() { // a level in brackets, without a space
		from = behind
	} else if strings.HasPrefix(from, "[") || hasPort(line[host.from:host.to]) {
		from = bareAddress(from)
	} else if strings.Contains(from, ":") {
		from = withoutFile(from)
	}
	request := text[requestStart:]
	if field, rest, ok := strings.Cut(request, `" "`); ok && !strings.Contains(field, " ") {
		request = rest // the first quotes are of another field, such as nginx's $host
	}
	method, path := splitRequest(request)
	if strings.Count(from, ":") > 1 { // IPv6 without brackets, and perhaps a port
		if address, ported := beforePort(from); ported && (!addressIn([]byte(from)).IsValid() || isHypercorn(request)) {
			from = address
		}
	}
	return Request{
		User:   user(text[ident:timeStart]),
		Time:   stamp,
		Host:   from,
		Method: method,
		Path:   path,
		Status: result.status,
		Bytes:  result.bytes,
	}, fault{}
}

// isHypercorn reports whether the protocol of a request lacks its name. Hypercorn, which writes it so, also writes a
// port behind each client, and IPv6 without brackets: 2001:db8::1:4711.
func isHypercorn(request string) bool {
	return slices.Contains(versions, request[strings.LastIndexByte(request, ' ')+1:])
}

// withoutFile returns an address without the file's name that grep puts in front of the lines of several files.
func withoutFile(from string) string {
	if !addressIn([]byte(from)).IsValid() {
		for _, colon := range []int{strings.IndexByte(from, ':'), strings.LastIndexByte(from, ':')} {
			if address := from[colon+1:]; addressIn([]byte(address)).IsValid() {
				return address
			}
		}
	}
	return from
}

// user returns the authenticated user of "ident user": everything after the ident, because names may
// contain spaces.
func user(fields string) string {
	_, name, _ := strings.Cut(strings.Trim(fields, " "), " ")
	name = strings.TrimLeft(name, " ") // Jetty writes "-  - "
	if listed, after, ok := strings.Cut(name, "] - "); ok && strings.HasPrefix(listed, "[") && addressIn([]byte(listed[1:])).IsValid() {
		name = after // ingress-nginx once wrote the client again, in brackets
	}
	if len(name) > 1 && name[0] == '"' && name[len(name)-1] == '"' {
		name = name[1 : len(name)-1]
	}
	if name == "-" {
		return ""
	}
	return name
}

type span struct{ from, to int }

// findHost finds the host in "host ident user ". User names may contain spaces, so there can be more
// than three fields. If the first field looks like name:port, it is the virtual host of Apache's
// vhost_combined, and the host comes second. Also, syslog, journald or Docker may have put any number
// of fields in front. aiohttp writes the address alone, and some formats of nginx add only one "-". ident
// is where the ident and the user begin.
func findHost(fields []byte) (host span, ident int, ok bool) {
	spaces := bytes.Count(fields, []byte(" "))
	if alone, ok := bytes.CutSuffix(bytes.TrimSuffix(fields, []byte("- ")), []byte(" ")); ok && spaces < 3 && addressIn(alone).IsValid() {
		return span{0, len(alone)}, len(alone), true
	}
	if spaces < 3 || fields[len(fields)-1] != ' ' {
		return span{}, 0, false
	}
	host = span{0, bytes.IndexByte(fields, ' ')}
	switch next := host.to + 1 + bytes.IndexByte(fields[host.to+1:], ' '); {
	case spaces == 3 && isStamp(fields[:host.to]): // the log has no hosts, and this is when the line was collected
		return span{}, 0, false
	case spaces == 3 || bytes.HasPrefix(fields[host.to:], []byte(" - ")) && !isClock(fields[:host.to]):
	case hasPort(fields[:host.to]) && fields[next-1] != ',':
		host = span{host.to + 1, next}
	default:
		host, ident = behindPrefix(fields)
		return host, ident, host.from < host.to
	}
	return host, host.to, host.from < host.to
}

// behindPrefix returns the first field before an ident of "-" that looks like an address. Without one,
// it returns the first that may be a name, or otherwise the first address. The span is empty if there
// is none. What looks like a name is a logger's if there is an address behind a "-" after it, as in
// "2006-01-02 15:04:05 - werkzeug.access - INFO - 10.0.0.1 - - ".
func behindPrefix(fields []byte) (host span, ident int) {
	var words []span
	for from := syslogHeader(fields); from < len(fields); from = words[len(words)-1].to + 1 {
		words = append(words, span{from, from + bytes.IndexByte(fields[from:], ' ')}) // fields ends with a space
	}
	var none, dotted, named, address span
	for i, word := range words {
		name := fields[word.from:word.to]
		valid := addressIn(name).IsValid()
		logged := i > 0 && string(fields[words[i-1].from:words[i-1].to]) == "-"
		if valid && logged && (dotted != none || named != none) {
			return word, word.to
		}
		missing := string(name) == `"-"` // X-Forwarded-For of a request without one
		if i > 0 && bytes.HasPrefix(fields[word.to:], []byte(" - ")) && (missing || digits(name) >= 0) {
			before := words[i-1]
			if ip := addressIn(fields[before.from:before.to]); ip.IsValid() && fields[before.to-1] != ',' {
				return client(fields, words[:i]), word.to // name is the client's port
			}
		}
		if bytes.HasPrefix(fields[word.to:], []byte(" - ")) && len(name) > 0 && string(name) != "-" && name[len(name)-1] != ':' && !isStamp(name) && !isClock(name) {
			if valid && dotted == none {
				return client(fields, words[:i+1]), word.to
			}
			if dotted == none && bytes.ContainsAny(name, ".:") {
				dotted, ident = client(fields, words[:i+1]), word.to
			}
			if named == none {
				named = word
			}
		}
		if address == none && valid {
			address = word
		}
	}
	switch {
	case dotted != none:
		return dotted, ident
	case named != none && !startsWithAddress(fields):
		return named, named.to
	}
	return address, address.to
}

// startsWithAddress reports whether the first field is an address, as of lighttpd, where a virtual host is next. A name
// behind it is a part of the user's.
func startsWithAddress(fields []byte) bool {
	first, _, _ := bytes.Cut(fields, []byte(" "))
	return addressIn(first).IsValid() && first[len(first)-1] != ','
}

// syslogHeader returns the length of the header of RFC 5424, as in "<30>1 TIME HOST APP PROCESS MESSAGE - ", or 0. Any
// word may be in front of its last "-".
func syslogHeader(fields []byte) (length int) {
	words := bytes.SplitAfterN(fields, []byte(" "), 8)
	if len(words) < 8 || fields[0] != '<' || !bytes.HasSuffix(words[0], []byte(">1 ")) || string(words[6]) != "- " {
		return 0
	}
	for _, word := range words[:7] {
		length += len(word)
	}
	return length
}

// client returns which of the words up to the one before the ident is the client. That is the last one,
// unless it is the virtual host that lighttpd writes there, or a proxy behind X-Forwarded-For. From a
// list of addresses, the first is taken.
func client(fields []byte, words []span) span {
	i := len(words) - 1
	for ; i > 0; i-- {
		before := fields[words[i-1].from:words[i-1].to]
		address, earlier := addressIn(fields[words[i].from:words[i].to]), addressIn(before)
		listed := bytes.HasSuffix(before, []byte(",")) || earlier.IsValid() &&
			(bytes.HasSuffix(before, []byte(`"`)) || i > 1 && bytes.HasSuffix(fields[:words[i-2].to], []byte(",")))
		virtual := !address.IsValid()
		proxy := isInside(address) && !isInside(earlier)
		if !listed && (!earlier.IsValid() || hasPort(before) || !virtual && !proxy) {
			break
		}
	}
	return words[i]
}

// addressIn parses a word as an address, without a port, and without the quotes and the comma of
// a list. The result is not valid if the word is not an address.
func addressIn(word []byte) netip.Addr {
	address, _ := netip.ParseAddr(firstOf(string(word)))
	return address
}

// firstOf returns the first address of a list, as proxies write it, without its port.
func firstOf(list string) string {
	first, _, _ := strings.Cut(strings.Trim(list, `"`), ",")
	return withoutPort(strings.Trim(first, ` "`))
}

func isInside(a netip.Addr) bool { return a.IsPrivate() || a.IsLoopback() }

// isStamp reports whether a word is a date and a time of day.
func isStamp(word []byte) bool {
	if len(word) <= len("2006-01-02") || word[4] != '-' && word[4] != '/' || word[7] != word[4] {
		return false
	}
	_, ok := parseStamp(string(word))
	return ok
}

// isClock reports whether a word is a time of day.
func isClock(word []byte) bool {
	if len(word) < len("15:04:05") || word[2] != ':' || word[5] != ':' {
		return false
	}
	_, err := time.Parse("15:04:05", string(word)) // also reads fractions of a second
	return err == nil
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
	if aborted := string(b) == " 0 0" || bytes.HasPrefix(b, []byte(" 0 0 ")); string(status) != "-" && !aborted { // Squid's client has left
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
