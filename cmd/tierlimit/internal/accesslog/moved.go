package accesslog

import (
	"bytes"
	"fmt"
	"slices"
)

// parseMoved reads a web server's line in which the time is not right in front of the request: there are
// words between them, as the host in APISIX's format, or not even a space, as in that of Amazon's API
// Gateway, or the client comes behind the time:
//
//	10.0.0.1 - - [02/Jan/2006:15:04:05 -0700] www.example.org "METHOD path PROTO" status bytes
//	[02/Jan/2006:15:04:05 -0700] 10.0.0.1 - - "METHOD path PROTO" status bytes
func parseMoved(line []byte) (Request, bool) {
	quote := bytes.IndexByte(line, '"')
	start := bytes.LastIndexByte(line[:max(quote, 0)], '[')
	end := bytes.IndexByte(line[max(start, 0):max(quote, 0)], ']')
	if start < 0 || end < 0 {
		return Request{}, false
	}
	front, stamp := line[:start], line[start:start+end]
	between := bytes.Fields(line[start+end+1 : quote])
	switch {
	case len(between) > 0 && addressIn(between[0]).IsValid() && (len(front) == 0 || len(between) == 3 && string(between[1]) == "-" && !hasAddress(front)):
		front = slices.Concat(bytes.Join(between, []byte(" ")), []byte(" "))
		if len(between) == 1 {
			front = slices.Concat(front, []byte("- - "))
		}
	case len(front) == 0:
		return Request{}, false
	}
	moved := slices.Concat(front, stamp, []byte("] "), line[quote:])
	if r, f := parse(moved); f.what == "" {
		return r, true
	}
	return parseISO(moved)
}

// hasAddress reports whether one of the words is an address. Otherwise they may be a prefix of Docker or syslog.
func hasAddress(words []byte) bool {
	return slices.ContainsFunc(bytes.Fields(words), func(word []byte) bool { return addressIn(word).IsValid() })
}

// parsePHP reads the access log of php-fpm, whose time has no brackets and whose responses have no size:
//
//	10.0.0.1 - user 02/Jan/2006:15:04:05 -0700 "METHOD path" status
func parsePHP(line []byte) (Request, bool) {
	quote := bytes.Index(line, []byte(` "`))
	start := quote - len("02/Jan/2006:15:04:05 -0700")
	if start < 1 || line[start-1] != ' ' {
		return Request{}, false
	}
	request := line[quote+len(` "`):]
	end := bytes.Index(request, []byte(`" `)) + len(`" 200`)
	if end < len(`" 200`) || end > len(request) {
		return Request{}, false
	}
	r, f := parse(slices.Concat(line[:start], []byte("["), line[start:quote], []byte(`] "`), request[:end], []byte(" -")))
	return r, f.what == ""
}

// parseUnbracketed reads a web server's line whose time has no brackets, as Apache and Varnish write it for %{…}t:
//
//	10.0.0.1 - user 2006-01-02T15:04:05-0700 "METHOD path PROTO" status bytes
func parseUnbracketed(line []byte) (Request, bool) {
	quote := bytes.Index(line, []byte(` "`))
	start := bytes.LastIndexByte(line[:max(quote, 0)], ' ') + 1
	if start < 1 || !isStamp(line[start:quote]) {
		return Request{}, false
	}
	return parseISO(slices.Concat(line[:start], []byte("["), line[start:quote], []byte("]"), line[quote:]))
}

// parseProxyManager reads the format of Nginx Proxy Manager, where two words in front of the status may be missing:
//
//	[02/Jan/2006:15:04:05 -0700] - 200 200 - METHOD https www.example.org "path" [Client 10.0.0.1] [Length bytes] …
func parseProxyManager(line []byte) (Request, bool) {
	head, rest, ok := bytes.Cut(line, []byte(` "`))
	path, rest, client := bytes.Cut(rest, []byte(`" [Client `))
	address, rest, length := bytes.Cut(rest, []byte(`] [Length `))
	size, _, closed := bytes.Cut(rest, []byte(`]`))
	stamp, words, timed := bytes.Cut(head, []byte("] "))
	w := bytes.Fields(words)
	if !ok || !client || !length || !closed || !timed || len(w) < 5 || string(w[len(w)-4]) != "-" || !bytes.HasPrefix(stamp, []byte("[")) {
		return Request{}, false
	}
	w = w[len(w)-5:]
	r, f := parse(fmt.Appendf(nil, `%s - - %s] "%s %s" %s %s`, address, stamp, w[2], path, w[0], size))
	return r, f.what == ""
}

// parseGlassFish reads the format of GlassFish and Payara, in which each field has quotes:
//
//	"10.0.0.1" "user" "02/Jan/2006:15:04:05 -0700" "METHOD path PROTO" status bytes
func parseGlassFish(line []byte) (Request, bool) {
	fields := bytes.SplitN(line, []byte(`" "`), 4)
	if len(fields) < 4 || !bytes.HasPrefix(line, []byte(`"`)) || len(fields[0]) < 2 || bytes.IndexByte(fields[0][1:], '"') >= 0 {
		return Request{}, false
	}
	user := bytes.Replace(fields[1], []byte("NULL-AUTH-USER"), []byte("-"), 1)
	r, f := parse(fmt.Appendf(nil, `%s - %s [%s] "%s`, fields[0][1:], user, fields[2], fields[3]))
	return r, f.what == ""
}

// parseApacheTLS reads the format that Apache's default configuration uses for ssl_request_log, which has no status:
//
//	[02/Jan/2006:15:04:05 -0700] 10.0.0.1 TLSv1.3 TLS_AES_256_GCM_SHA384 "METHOD path PROTO" bytes
func parseApacheTLS(line []byte) (Request, bool) {
	head, request, ok := bytes.Cut(line, []byte(` "`))
	stamp, words, timed := bytes.Cut(head, []byte("] "))
	w := bytes.Fields(words)
	end := bytes.LastIndex(request, []byte(`" `))
	if !ok || !timed || len(w) != 3 || !bytes.HasPrefix(w[1], []byte("TLSv")) && !bytes.HasPrefix(w[1], []byte("SSLv")) || end < 0 || !bytes.HasPrefix(stamp, []byte("[")) {
		return Request{}, false
	}
	r, f := parse(fmt.Appendf(nil, `%s - - %s] "%s" - %s`, w[0], stamp, request[:end], request[end+len(`" `):]))
	return r, f.what == ""
}
