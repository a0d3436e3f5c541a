package accesslog

import (
	"bytes"
	"cmp"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"
)

// The causes of lines that are requests, but lack what a limit needs.
const (
	noStamp  = `a request without a whole date and time: docker logs -t, kubectl logs --timestamps and journalctl -o short-iso put one in front`
	noClient = `a request without a client, as in morgan's formats "tiny" and "dev": its format "combined" has a client and a time`
)

// parseTimeInFront reads the formats whose time may be in front of them, where a program that collects lines puts it.
func parseTimeInFront(line []byte) (Request, fault) {
	for _, format := range []func([]byte) (Request, fault){parseBehind, parseSpring, parseLogfmt, parseUntimed} {
		r, f := format(line)
		switch f.what {
		case "", noRequest, noStamp, noClient, loggedTwice:
			return r, f
		}
	}
	return Request{}, fault{what: noTime}
}

// parseUntimed reads a line that has its time in front, or nowhere, as uvicorn, morgan (in its format "short") and
// Fiber write it:
//
//	2006-01-02T15:04:05.123Z INFO:     client:port - "METHOD path PROTO" 200 OK
//	2006-01-02T15:04:05.123Z client user METHOD path PROTO 200 7 - 1.2 ms
func parseUntimed(line []byte) (Request, fault) {
	text := string(line)
	r, front, f := parseUvicorn(text)
	for _, format := range []func(string) (Request, string, fault){parseFiber, parseUnquoted, parseMorgan} {
		if f.what == noTime {
			r, front, f = format(text)
		}
	}
	if f.what != "" {
		return Request{}, f
	}
	_, own := stampsIn(front) // behind the time at which the line was collected
	at, ok := parseStamp(own)
	if !ok { // nginx's $msec; a number in the seventies is rather that of a process or a line
		at, ok = parseStamp(strings.TrimSpace(front))
		ok = ok && at.Year() >= 1980
	}
	if !ok {
		return Request{}, fault{what: noStamp}
	}
	r.Time = at
	return r, fault{}
}

// parseUvicorn reads a client right in front of a quoted request, perhaps with a dash between them, as Granian,
// Actix and some formats of nginx have it, too. With a dash, the end of an IPv6 address may be the port that uvicorn
// writes there.
func parseUvicorn(text string) (r Request, front string, f fault) {
	from, result, ok := strings.Cut(text, ` "`)
	from, dashed := strings.CutSuffix(from, " -")
	client := strings.LastIndexByte(from, ' ') + 1
	address, addressed := beforePort(from[client:])
	if ip, err := netip.ParseAddr(from[client:]); err == nil && (!addressed || !dashed) {
		address, addressed = ip.String(), true
	}
	protocol := strings.Index(result, " HTTP/")
	end := protocol + strings.Index(result[max(0, protocol):], `" `)
	if !ok || !addressed || protocol < 0 || end < protocol {
		return r, front, fault{what: noTime}
	}
	status, rest, _ := strings.Cut(result[end+len(`" `):], " ")
	if !isStatus(status) {
		return r, front, fault{what: noTime}
	}
	size, _, _ := strings.Cut(rest, " ")
	r = Request{Host: address, Status: int(digits([]byte(status))), Bytes: max(0, digits([]byte(size)))}
	r.Method, r.Path = splitRequest(result[:end])
	return r, from[:client], fault{}
}

func parseMorgan(text string) (r Request, front string, f fault) {
	if strings.Contains(text, "\x1b") {
		text = colours.ReplaceAllString(text, "")
	}
	words := strings.Fields(text)
	last := len(words) - 1 // what follows the path in each format, from the end of the line
	switch {
	case last < 6:
	case words[last] == "ms" && words[last-2] == "-" && (isStatus(words[last-4]) || words[last-4] == "-"): // short and tiny: 200 7 - 1.2 ms
		if last < 9 || !strings.HasPrefix(words[last-5], "HTTP/") {
			return r, front, fault{what: noClient}
		}
		r = Request{Host: words[last-9], Method: words[last-7], Path: words[last-6], Status: int(max(0, digits([]byte(words[last-4])))), Bytes: max(0, digits([]byte(words[last-3])))}
		if user := words[last-8]; user != "-" {
			r.User = user
		}
		if addressIn([]byte(r.Host)).IsValid() && isMethod(r.Method) {
			return r, strings.Join(words[:last-9], " "), fault{}
		}
	case words[last-1] == "-" && words[last-2] == "ms" && isStatus(words[last-4]) && isMethod(words[last-6]): // dev: 200 1.2 ms - 7
		return r, front, fault{what: noClient}
	}
	return r, front, fault{what: noTime}
}

// parseUnquoted reads a client right in front of a request without quotes, as Sanic and formats that people make write
// it. Sanic may have brackets around the client:
//
//	Srv 0 |2006-01-02 15:04:05 -0700 INFO: client:port METHOD url 200 7 1.2ms
//	[2006-01-02 15:04:05 -0700] - (sanic.access)[INFO][client:port]: METHOD url  200 7
func parseUnquoted(text string) (r Request, front string, f fault) {
	words := strings.Fields(colours.ReplaceAllString(text, ""))
	for i := 1; i+2 < len(words); i++ {
		if !isMethod(words[i]) || !strings.Contains(words[i+1], "/") {
			continue
		}
		result := words[i+2:]
		if strings.HasPrefix(result[0], "HTTP/") {
			result = result[1:]
		}
		client := words[i-1]
		if inner, ok := strings.CutSuffix(client, "]:"); ok {
			client = inner[strings.LastIndexByte(inner, '[')+1:]
		}
		if bare, ported := beforePort(client); ported {
			client = bare
		}
		if len(result) == 0 || !isStatus(result[0]) || !addressIn([]byte(client)).IsValid() {
			continue
		}
		r = Request{Host: firstOf(client), Method: words[i], Path: withoutOrigin(words[i+1]), Status: int(digits([]byte(result[0])))}
		if len(result) > 1 {
			r.Bytes = max(0, digits([]byte(result[1])))
		}
		return r, strings.Join(words[:i-1], " "), fault{}
	}
	return r, front, fault{what: noTime}
}

// springRequest is what Spring's CommonsRequestLoggingFilter writes. Old versions have other separators, and the text
// in front of the second line may be another.
var springRequest = regexp.MustCompile(`(Before request \[|After request \[|RequestLoggingFilter +: .*?)(?:([A-Z]+) |uri=)(.*?)(?:[,;] ?client=([^,;\]]+))?(?:[,;] ?session=[^,;\]]+)?(?:[,;] ?user=([^,;\]]+))?(?:[,;] ?(?:headers|payload)=.*)?\]?$`)

// parseSpring reads the lines that Spring's CommonsRequestLoggingFilter writes before and after each request:
//
//	2006-01-02T15:04:05.123Z DEBUG 1 --- [thread] logger : Before request [METHOD path, client=10.0.0.1, user=bob]
func parseSpring(line []byte) (Request, fault) {
	if !bytes.Contains(line, []byte(" request [")) && !bytes.Contains(line, []byte("RequestLoggingFilter ")) {
		return Request{}, fault{what: noTime}
	}
	at := springRequest.FindSubmatchIndex(line)
	if at == nil {
		return Request{}, fault{what: noTime}
	}
	text := func(group int) string { return string(line[max(0, at[2*group]):max(0, at[2*group+1])]) }
	stamp, ok := parseStamp(stampIn(string(line[:at[0]])))
	switch {
	case !strings.HasSuffix(text(1), "Before request ["):
		return Request{}, fault{what: loggedTwice}
	case !ok:
		return Request{}, fault{what: noStamp}
	}
	return Request{Time: stamp, Host: cmp.Or(text(4), "-"), Method: text(2), Path: text(3), User: text(5)}, fault{}
}

func isStatus(word string) bool { return len(word) == 3 && digits([]byte(word)) >= 0 }

// parseInner reads a line inside an object or a row. If the line itself has no time, its time is when it was
// collected.
func (f fields) parseInner(line []byte) (Request, fault) {
	r, wrong := parseAny(line)
	if wrong.what != noStamp && wrong.what != noJSONTime {
		return r, wrong
	}
	at, ok := f.time()
	if !ok {
		at, ok = parseStamp(f.text("__REALTIME_TIMESTAMP"))
	}
	if !ok {
		return r, wrong
	}
	stamped := slices.Concat(at.AppendFormat(nil, time.RFC3339Nano), []byte(" "), line)
	if r, f := parseTimeInFront(stamped); f.what == "" || f.what == noRequest {
		return r, f
	}
	return r, wrong
}
