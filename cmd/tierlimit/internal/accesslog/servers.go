package accesslog

import (
	"bytes"
	"slices"
	"strings"
)

// parseRails reads the line with which Rails begins a request:
//
//	Started METHOD "path" for client at 2006-01-02 15:04:05 -0700
func parseRails(line []byte) (Request, bool) {
	_, text, ok := strings.Cut(string(line), "Started ")
	from := strings.LastIndex(text, `" for `)
	if !ok || from < 0 {
		return Request{}, false
	}
	method, path, ok := strings.Cut(text[:from], ` "`)
	client, stamp, timed := strings.Cut(text[from+len(`" for `):], " at ")
	at, is := parseStamp(stamp)
	if !ok || !timed || !is || !addressIn([]byte(client)).IsValid() {
		return Request{}, false
	}
	return Request{Time: at, Host: client, Method: method, Path: strings.Trim(path, " ")}, isMethod(method)
}

// isMethod reports whether a word is in capital letters, as the methods of HTTP are.
func isMethod(word string) bool {
	return word != "" && strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") == ""
}

// parseUWSGI reads the default format of uWSGI. Its time has no zone and is taken to be UTC:
//
//	[pid: 1|app: 0|req: 1/1] client (user) {4 vars in 7 bytes} [Mon Jan _2 15:04:05 2006] METHOD path => generated 7 bytes in …
func parseUWSGI(line []byte) (Request, bool) {
	_, text, ok := strings.Cut(string(line), "|req: ")
	end := strings.LastIndex(text, " => generated ")
	if !ok || end < 0 {
		return Request{}, false
	}
	_, text, ok = strings.Cut(text[:end], "] ")
	from, rest, vars := strings.Cut(text, " {")
	_, rest, stamped := strings.Cut(rest, "} [")
	stamp, request, closed := strings.Cut(rest, "] ")
	at, is := parseStamp(stamp)
	if !ok || !vars || !stamped || !closed || !is {
		return Request{}, false
	}
	client, user, _ := strings.Cut(from, " (")
	size, _, _ := strings.Cut(string(line[bytes.LastIndex(line, []byte(" => generated "))+len(" => generated "):]), " ")
	r := Request{Time: at, Host: firstOf(client), User: strings.TrimSuffix(user, ")"), Bytes: max(0, digits([]byte(size)))}
	if r.Host == "" { // behind a socket of Unix
		r.Host = "-"
	}
	r.Method, r.Path = splitRequest(request)
	return r, true
}

// parseTornado reads the format of Tornado, and of Jupyter, which adds the user. Its time has no zone and is taken
// to be UTC:
//
//	[I 060102 15:04:05 web:2271] 200 METHOD path (client) 1.2ms
//	[I 2006-01-02 15:04:05.123 ServerApp] 200 METHOD path (user@client) 1.2ms
func parseTornado(line []byte) (Request, bool) {
	_, text, ok := strings.Cut(string(line), "[")
	head, text, closed := strings.Cut(text, "] ")
	words, parts := strings.Fields(head), strings.Fields(text)
	from := strings.LastIndex(text, " (")
	if !ok || !closed || len(words) < 3 || len(words[0]) != 1 || len(parts) < 5 || len(parts[0]) != 3 || from < 0 || !isMethod(parts[1]) {
		return Request{}, false
	}
	day := words[1]
	if len(day) == len("060102") && digits([]byte(day)) >= 0 {
		day = "20" + day[:2] + "-" + day[2:4] + "-" + day[4:]
	}
	at, is := parseStamp(day + " " + words[2])
	client, rest, ok := strings.Cut(text[from+len(" ("):], ") ")
	took, _, _ := strings.Cut(rest, " ")
	user, address, named := strings.Cut(client, "@")
	if !named {
		user, address = "", client
	}
	status := digits([]byte(parts[0]))
	if !is || !ok || !strings.HasSuffix(took, "ms") || status < 0 || !addressIn([]byte(address)).IsValid() {
		return Request{}, false
	}
	return Request{Time: at, Host: address, User: user, Method: parts[1], Path: parts[2], Status: int(status)}, true
}

// parseSquid reads Squid's own format. The time is in seconds:
//
//	1136214245.123  7 client TCP_MISS/200 bytes METHOD url user HIER_DIRECT/10.0.0.2 text/html
func parseSquid(line []byte) (Request, bool) {
	if !bytes.Contains(line, []byte("/")) {
		return Request{}, false
	}
	words := strings.Fields(string(line))
	result := slices.IndexFunc(words, func(word string) bool {
		code, status, ok := strings.Cut(word, "/")
		return ok && len(status) == 3 && digits([]byte(status)) >= 0 && isMethod(strings.ReplaceAll(code, "_", ""))
	})
	if result < 3 || len(words) < result+6 {
		return Request{}, false
	}
	at, ok := parseEpoch(words[result-3])
	if !ok || at.Year() < 1980 { // a date and its zone
		at, ok = parseStamp(strings.Join(words[max(0, result-4):result-2], " "))
	}
	size, user := digits([]byte(words[result+1])), words[result+4]
	if !ok || size < 0 || digits([]byte(words[result-2])) < 0 || !strings.Contains(words[result+5], "/") {
		return Request{}, false
	}
	if user == "-" {
		user = ""
	}
	_, status, _ := strings.Cut(words[result], "/")
	return Request{
		Time: at, Host: words[result-1], Status: int(digits([]byte(status))), Bytes: size,
		Method: words[result+2], Path: words[result+3], User: user,
	}, true
}
