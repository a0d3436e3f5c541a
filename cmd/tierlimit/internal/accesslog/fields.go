package accesslog

import (
	"net/netip"
	"strings"
	"time"
)

// The names that a field may have, the first that is there. Some are those of Caddy, which has objects
// in objects as Google's load balancer has, of Traefik, Envoy, Amazon's gateways, nginx's variables, and of
// the W3C's format, which IIS and CloudFront write. "host" comes last, since next to an address it is
// mostly the server's name.
var (
	timeNames   = []string{"StartUTC", "time", "ts", "timestamp", "@timestamp", "start_time", "msec", "time_iso8601", "time_local", "datetime", "requestTimeEpoch", "requestTime"}
	hostNames   = []string{"remote_addr", "client_ip", "remote_ip", "ip", "ClientHost", "request.client_ip", "request.remote_ip", "downstream_remote_address", "httpRequest.remoteIp", "c-ip", "client.ip", "source.ip", "client", "client_addr", "sourceIp", "host"}
	userNames   = []string{"user", "user_id", "remote_user", "ClientUsername", "cs-username", "user.name"}
	methodNames = []string{"method", "request_method", "RequestMethod", "request.method", "httpRequest.requestMethod", "cs-method", "httpMethod"}
	pathNames   = []string{"path", "uri", "request_uri", "url", "RequestPath", "resourcePath", "request.uri", "httpRequest.requestUrl", "cs-uri-stem", "url.path", "url.original"}
	statusNames = []string{"status", "response_code", "DownstreamStatus", "httpRequest.status", "sc-status"}
	bytesNames  = []string{"bytes", "bytes_sent", "body_bytes_sent", "size", "DownstreamContentSize", "httpRequest.responseSize", "sc-bytes", "responseLength", "http.response.body.bytes"}
)

// fields is what a line says under names: an object of JSON, or columns below a header.
type fields []field

type field struct {
	name  []byte
	value []byte
	plain bool // text as it is, and no value of JSON
}

// request is the request that the fields tell of.
func (f fields) request() (Request, fault) {
	at, ok := f.time()
	if !ok {
		return Request{}, fault{what: noJSONTime}
	}
	r := Request{
		Time: at, Host: f.host(), User: f.text(userNames...),
		Method: strings.TrimSpace(f.text(methodNames...)), Path: strings.Trim(withoutOrigin(f.text(pathNames...)), " "),
		Status: int(max(0, min(999, f.number(statusNames...)))), Bytes: max(0, f.number(bytesNames...)),
	}
	if r.Host == "" {
		r.Host = "-"
	}
	if r.Method == "" && r.Path == "" {
		r.Method, r.Path = splitRequest(f.text("request")) // nginx's variable
	}
	if strings.Contains(r.Method, " ") || strings.Contains(r.Path, "\n") {
		return Request{}, fault{what: badJSON}
	}
	if _, said := f.find("cost"); said {
		if r.Cost = f.number("cost"); r.Cost < 1 {
			return Request{}, fault{badCost, []byte(f.text("cost"))}
		}
	}
	return r, fault{}
}

// time is the first time that can be read.
func (f fields) time() (time.Time, bool) {
	for _, name := range timeNames {
		if at, ok := parseStamp(f.text(name)); ok {
			return at, true
		}
	}
	return time.Time{}, false
}

// host is the key, or else the client's address without its port, which each connection has
// another of.
func (f fields) host() string {
	if key := f.text("key"); key != "" {
		return key
	}
	return withoutPort(f.text(hostNames...))
}

func withoutPort(host string) string {
	if address, err := netip.ParseAddrPort(host); err == nil {
		return address.Addr().String()
	}
	return host
}

// withoutOrigin is the path of a URL that begins with a scheme and a host.
func withoutOrigin(url string) string {
	scheme := strings.Index(url, "://")
	if scheme < 0 || strings.ContainsAny(url[:scheme], "/?") {
		return url
	}
	rest := url[scheme+len("://"):]
	if slash := strings.IndexAny(rest, "/?"); slash >= 0 {
		return rest[slash:]
	}
	return "/"
}

// find is the last field of a name, as parsers of JSON have it.
func (f fields) find(name string) (field, bool) {
	for i := len(f) - 1; i >= 0; i-- {
		if string(f[i].name) == name {
			return f[i], true
		}
	}
	return field{}, false
}

// text is the first field that is there and not empty, as text.
func (f fields) text(names ...string) string {
	for _, name := range names {
		if found, ok := f.findNested(name); ok {
			if s := found.text(); s != "" {
				return s
			}
		}
	}
	return ""
}

// findNested is find, but "a.b" may also be the field b of an object a.
func (f fields) findNested(name string) (field, bool) {
	found, ok := f.find(name)
	if object, inner, nested := strings.Cut(name, "."); !ok && nested {
		if outer, there := f.find(object); there && !outer.plain && outer.value[0] == '{' {
			return scanObject(nil, outer.value).findNested(inner)
		}
	}
	return found, ok
}

// number is the same as a whole number, which may be written like 1500.0; -1 if it is none.
func (f fields) number(names ...string) int64 {
	text := f.text(names...)
	if whole, zeros, ok := strings.Cut(text, "."); ok && zeros != "" && strings.Trim(zeros, "0") == "" {
		text = whole
	}
	return digits([]byte(text))
}

// text is the value of a string or a number, and empty of anything else.
func (f field) text() string {
	switch {
	case f.plain:
		return string(f.value)
	case f.value[0] == '"':
		return unquote(f.value)
	case f.value[0] == '-' || f.value[0] >= '0' && f.value[0] <= '9':
		return string(f.value)
	}
	return ""
}
