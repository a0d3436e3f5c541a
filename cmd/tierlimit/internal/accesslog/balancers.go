package accesslog

import (
	"bytes"
	"net/netip"
	"strings"
)

// parseEnvoy reads Envoy's default format, and the one that Istio sets:
//
//	[2006-01-02T15:04:05.123Z] "METHOD path PROTO" status flags … "forwarded for" "agent" …
//
// The client is the address with a port in the last part of the line, as Istio writes it, or, without
// one, the first address of X-Forwarded-For.
func parseEnvoy(line []byte) (Request, bool) {
	end := bytes.Index(line, []byte(`] "`))
	start := bytes.LastIndexByte(line[:max(end, 0)], '[')
	if start < 0 {
		return Request{}, false
	}
	at, ok := parseStamp(string(line[start+1 : end]))
	parts := strings.Split(string(line[end+len(`] "`):]), `"`)
	if !ok || len(parts) < 3 {
		return Request{}, false
	}
	numbers, forwarded := strings.Fields(parts[1]), parts[2]
	if len(numbers) > 1 && digits([]byte(numbers[1])) >= 0 { // no flags: another server's line with a time like Envoy's
		return Request{}, false
	}
	sent := 3
	if (len(numbers) == 4 || len(numbers) == 2) && len(parts) > 4 { // Istio writes more about the response
		numbers, forwarded = append(numbers[:1], strings.Fields(parts[3])...), parts[4]
		sent = 2
	}
	if len(numbers) <= sent || len(numbers[0]) > 3 || digits([]byte(numbers[0])) < 0 {
		return Request{}, false
	}
	r := Request{Time: at, Host: "-", Status: int(digits([]byte(numbers[0]))), Bytes: max(0, digits([]byte(numbers[sent])))}
	r.Method, r.Path = splitRequest(parts[0])
	if first := firstOf(forwarded); first != "" {
		r.Host = first
	}
	if last := strings.Fields(parts[len(parts)-1]); len(last) > 3 && withoutPort(last[3]) != last[3] {
		r.Host = withoutPort(last[3])
	}
	return r, true
}

// parseAmazon reads the lines of Amazon's load balancers. Classic load balancers leave out the type at
// the beginning:
//
//	https 2006-01-02T15:04:05.123Z name client:port target:port 0.0 0.0 0.0 200 200 received sent "METHOD url PROTO" …
func parseAmazon(line []byte) (Request, bool) {
	head, rest, ok := strings.Cut(string(line), ` "`)
	words := strings.Fields(head)
	if !ok || len(words) < 11 {
		return Request{}, false
	}
	words = words[len(words)-11:] // the type is in front, and perhaps the prefix of a program that collects lines
	at, ok := parseStamp(words[0])
	client, addressed := beforePort(words[2])
	if !ok || !addressed {
		return Request{}, false
	}
	r := Request{Time: at, Host: client, Status: int(min(999, max(0, digits([]byte(words[7]))))), Bytes: max(0, digits([]byte(words[10])))}
	request, _, _ := strings.Cut(rest, `"`)
	r.Method, r.Path = splitRequest(request)
	r.Path = strings.Trim(withoutOrigin(r.Path), " ")
	return r, true
}

// parseNetworkBalancer reads the lines of Amazon's network load balancers, which are of connections with TLS:
//
//	tls 2.0 2006-01-02T15:04:05 name listener client:port target:port 5 2 received sent …
func parseNetworkBalancer(line []byte) (Request, bool) {
	start := bytes.Index(line, []byte("tls "))
	if start < 0 || start > 0 && line[start-1] != ' ' {
		return Request{}, false
	}
	words := strings.Fields(string(line[start:]))
	if len(words) < 11 {
		return Request{}, false
	}
	at, ok := parseStamp(words[2])
	client, addressed := beforePort(words[5])
	return Request{Time: at, Host: client, Bytes: max(0, digits([]byte(words[10])))}, ok && addressed
}

// parseS3 reads the access logs of Amazon's S3. Operations of Amazon itself, such as the removal of an object that
// has expired, have no client:
//
//	owner bucket [02/Jan/2006:15:04:05 -0700] client requester ID operation key "METHOD path PROTO" status error bytes …
func parseS3(line []byte) (Request, bool) {
	_, rest, ok := bytes.Cut(line, []byte(" ["))
	stamp, rest, closed := bytes.Cut(rest, []byte("] "))
	head, rest, quoted := bytes.Cut(rest, []byte(` "`))
	words := strings.Fields(string(head))
	if !ok || !closed || !quoted || len(words) != 5 || !strings.Contains(words[3], ".") {
		return Request{}, false
	}
	at, wrong := parseTime(stamp)
	request, result, ended := strings.Cut(string(rest), `" `)
	if wrong.what != "" || at.Unix() >= lastSecond || !ended {
		return Request{}, false
	}
	r := Request{Time: at, Host: words[0]}
	r.Method, r.Path = splitRequest(request)
	if words[1] != "-" {
		r.User = words[1]
	}
	if results := strings.Fields(result); len(results) > 2 {
		r.Status, r.Bytes = int(min(999, max(0, digits([]byte(results[0]))))), max(0, digits([]byte(results[2])))
	}
	return r, true
}

// parseHAProxy reads HAProxy's format for HTTP. Its time has no zone and is taken to be UTC:
//
//	client:port [02/Jan/2006:15:04:05.123] frontend backend/server timers status bytes … "METHOD path PROTO"
func parseHAProxy(line []byte) (Request, bool) {
	head, rest, ok := strings.Cut(string(line), " [")
	stamp, rest, closed := strings.Cut(rest, "] ")
	words := strings.Fields(rest)
	if !ok || !closed || len(words) < 5 {
		return Request{}, false
	}
	at, wrong := parseTime([]byte(stamp + " +0000"))
	client, addressed := beforePort(head[strings.LastIndexByte(head, ' ')+1:])
	if wrong.what != "" || at.Unix() >= lastSecond || !addressed {
		return Request{}, false
	}
	sized := func(word string) int64 { return max(0, digits([]byte(strings.TrimPrefix(word, "+")))) } // + with option logasap
	switch timers := strings.Count(words[2], "/") + 1; {
	case timers < 3: // a message
		return Request{}, false
	case timers < 5: // option tcplog, which has no status
		return Request{Time: at, Host: client, Bytes: sized(words[3])}, true
	}
	r := Request{Time: at, Host: client, Status: int(min(999, max(0, digits([]byte(words[3]))))), Bytes: sized(words[4])}
	if _, request, ok := strings.Cut(rest, `"`); ok {
		r.Method, r.Path = splitRequest(strings.TrimSuffix(request, `"`))
		r.Path = strings.Trim(withoutOrigin(r.Path), " ") // HTTP/2 has whole URLs
	}
	return r, true
}

// beforePort returns the address before a port that must be present, in the forms that balancers write:
// IPv6 with brackets or without.
func beforePort(s string) (address string, ok bool) {
	if address = withoutPort(s); address != s {
		return address, true
	}
	colon := strings.LastIndexByte(s, ':')
	if colon < 0 || digits([]byte(s[colon+1:])) < 0 {
		return "", false
	}
	ip, err := netip.ParseAddr(s[:colon])
	return ip.String(), err == nil
}
