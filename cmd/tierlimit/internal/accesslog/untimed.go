package accesslog

import (
	"net/netip"
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
	for _, format := range []func([]byte) (Request, fault){parseBehind, parseLogfmt, parseUntimed} {
		r, f := format(line)
		switch f.what {
		case "", noRequest, noStamp, noClient:
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
	for _, format := range []func(string) (Request, string, fault){parseMorgan, parseFiber} {
		if f.what == noTime {
			r, front, f = format(text)
		}
	}
	if f.what != "" {
		return Request{}, f
	}
	at, ok := parseStamp(stampIn(front))
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
