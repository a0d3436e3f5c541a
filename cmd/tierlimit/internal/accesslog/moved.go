package accesslog

import (
	"bytes"
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
	case len(front) == 0 && len(between) > 0 && addressIn(between[0]).IsValid():
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
