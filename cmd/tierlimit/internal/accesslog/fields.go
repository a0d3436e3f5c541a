package accesslog

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// The names that a field may have; the first name that is present counts. Other than in those of times, capitals and
// marks may differ: client_ip stands for clientIp, ClientIP and client-ip, too. They include the names of
// Caddy (which nests objects, as do Google's load balancer, Azure's, Kong and loggers of Node and Go), Traefik,
// Envoy, Linkerd, Amazon's gateways and tables, Cloudflare, Datadog, nginx's variables, and the W3C's format, which IIS and CloudFront
// write. "host" comes last, because next to an address it is mostly the server's name.
var (
	timeNames   = []string{"StartUTC", "time", "ts", "timestamp", "@timestamp", "start_time", "msec", "time_iso8601", "time_local", "datetime", "requestTimeEpoch", "requestTime", "EdgeStartTimestamp", "started_at", "timeStamp", "Timestamp", "_time", "@t", "date", "eventTime", "reqTimeSec", "requestReceivedTimestamp", "TimeGenerated", "EdgeEndTimestamp", "startTime", "asctime", "Time", "DateTime", "t", "time_micros", "Datetime", "timestamp(ms)", "EventTimestampMs", "dateTime"}
	hostNames   = slices.Concat(clientNames, []string{"host"})
	clientNames = []string{
		"remote_ip", "remote_addr", "client_ip", "ip", "ClientHost", "request.client_ip", "request.remote_ip", "downstream_remote_address",
		"httpRequest.remoteIp", "c-ip", "client.ip", "source.ip", "remote", "properties.clientIp", "req.remoteAddress", "request.remote_addr", "client",
		"client_addr", "id.orig_h", "remoteAddress", "callerIpAddress", "src_ip", "client.address", "request.remote_address", "request.ip",
		"httpRequest.clientIp", "client.addr", "ip_address", "remote_host", "cliIP", "sourceIPAddress", "network.client.ip",
		"attributes.network.client.ip", "peer.address", "proxy.clientIp", "http.client_ip", "net.peer.ip", "network.peer.address", "sourceIPs",
		"properties.CIp", "sourceIpPort", "protoPayload.requestMetadata.callerIp", "http.request.remoteaddr", "cs-ip", "protoPayload.ip", "data.clientAddr", "downstream_remote_address_without_port",
	}
	forwardedNames = []string{
		"fwd", "x_forwarded_for", "http_x_forwarded_for",
	}
	userNames = []string{
		"user", "user_id", "remote_user", "ClientUsername", "cs-username", "user.name", "user.username", "consumer.username", "userIdentity.arn",
		"protoPayload.authenticationInfo.principalEmail",
	}
	methodNames = []string{
		"method", "request_method", "request.method", "httpRequest.requestMethod", "httpRequest.httpMethod", "cs-method", "httpMethod",
	}
	pathNames = []string{
		"path", "uri", "request_uri", "url", "RequestPath", "resourcePath", "request.uri", "request.path", "uri_path", "httpRequest.requestUrl",
		"httpRequest.requestPath", "httpRequest.uri", "cs-uri-stem", "url.path", "url.original", "ClientRequestURI", "properties.requestUri", "req.url",
		"request_url", "requested_uri", "reqPath", "x-envoy-origin-path", "http.url", "attributes.http.url", "cs-uri-path", "meta.req.url",
		"Properties.RequestPath", "proxy.path", "http.target", "ClientRequestPath", "properties.CsUriStem", "http.request.uri", "cs-uri", "protoPayload.resource", "httpRequest.path", "properties.url",
	}
	statusNames = []string{
		"status", "response_code", "DownstreamStatus", "httpRequest.status", "sc-status",
	}
	bytesNames = []string{
		"bytes", "bytes_sent", "body_bytes_sent", "size", "DownstreamContentSize", "httpRequest.responseSize", "sc-bytes", "responseLength",
		"http.response.body.bytes", "EdgeResponseBytes", "properties.responseBytes", "properties.sentBytes", "response.size", "response_bytes",
		"bytes_out", "bytes_written", "sent_bytes", "response_body_size", "properties.ScBytes", "bytes_read",
	}
	// messageNames are of a program's messages.
	messageNames = []string{"msg", "message", "@message", "short_message", "textPayload", "@mt", "@m", "MessageTemplate", "level", "severity"}
)

// fields are the named values of a line: a JSON object, or columns below a header.
type fields []field

type field struct {
	name  []byte
	value []byte
	plain bool // value is plain text and not a JSON value
}

// request returns the request that the fields describe.
func (f fields) request() (Request, fault) {
	at, ok := f.time()
	if !ok {
		return Request{}, fault{noJSONTime, f.unreadTime()}
	}
	if f.again() {
		return Request{}, fault{what: loggedTwice}
	}
	r := Request{
		Time: at, Host: f.host(), User: f.text(userNames...),
		Method: strings.TrimSpace(f.text(methodNames...)), Path: strings.Trim(withoutOrigin(f.text(pathNames...)), " "),
		Status: int(max(0, min(999, f.number(statusNames...)))), Bytes: max(0, f.number(bytesNames...)),
	}
	if r.Host == "" {
		r.Host = "-"
	}
	if r.Path == "" {
		method, path := splitRequest(f.text("request", "req", "requestLine")) // nginx's variable, the label of LTSV, and WildFly's name
		switch {
		case r.Method == "" || r.Method == method:
			r.Method, r.Path = method, path
		case method == "": // Apache's %U, the path alone
			r.Path = path
		}
	}
	if strings.Contains(r.Method, " ") || strings.Contains(r.Path, "\n") {
		return Request{}, fault{what: badMethod}
	}
	if _, said := f.find("cost"); said {
		if r.Cost = f.number("cost"); r.Cost < 1 {
			return Request{}, fault{badCost, []byte(f.text("cost"))}
		}
	}
	if !f.hasRequest(r) && f.text(messageNames...) != "" {
		return Request{}, fault{what: noRequest}
	}
	return r, fault{}
}

// hasRequest reports whether fields have more of a request r than its time. Programs write messages into the
// log of their requests. If those counted, they would all be requests of one key, "-", or of the machine on
// which the program runs, which is "host" in a message.
func (f fields) hasRequest(r Request) bool {
	return r.Path != "" || r.Method != "" || r.User != "" || r.Cost != 0 || addressIn([]byte(r.Host)).IsValid() ||
		f.text("key") != "" || f.text(clientNames...) != "" || f.text(forwardedNames...) != ""
}

// again reports whether the fields are an event of a request that has another event: the audit log of Kubernetes
// has one for each stage of a request, and those of Vault and of Java's Logbook have one for the response.
func (f fields) again() bool {
	if stage := f.text("stage"); stage == "RequestReceived" || stage == "ResponseStarted" {
		return f.text("auditID") != ""
	}
	return f.text("type") == "response" && f.text("request.operation", "correlation") != ""
}

// time returns the first of the times that can be read. A number that would be in the seventies is rather
// how long the request took, if there is another time.
func (f fields) time() (first time.Time, ok bool) {
	for _, name := range timeNames {
		named, found := f.find(name) // exactly: request_time is how long it took, and requestTime is when it came
		if !found {
			continue
		}
		text := named.text()
		if inner, ok := strings.CutPrefix(text, "["); ok { // Apache's %t has brackets
			text = strings.TrimSuffix(inner, "]")
		}
		at, is := parseStamp(text)
		if is && at.Year() >= 1980 {
			return at, true
		}
		if is && !ok {
			first, ok = at, true
		}
	}
	if at, is := parseStamp(f.text("date") + "T" + f.text("time")); is { // a time of day
		return at, true
	}
	return first, ok
}

// unreadTime returns the first of the times, which cannot be read, or nil if there is none.
func (f fields) unreadTime() []byte {
	for _, name := range timeNames {
		if named, found := f.find(name); found {
			return []byte(named.text())
		}
	}
	return nil
}

// host returns the key or, if there is none, the client's address, which is a forwarded one if there is no
// other. The address is without its port, which differs between a client's connections.
func (f fields) host() string {
	if key := f.text("key"); key != "" {
		return key
	}
	host := f.text(hostNames...)
	if !addressIn([]byte(host)).IsValid() { // rather the server's name, or a socket
		if forwarded := f.text(forwardedNames...); forwarded != "" && forwarded != "-" {
			host = forwarded
		}
	}
	if strings.Contains(host, ",") {
		return firstOf(host)
	}
	return bareAddress(host)
}

// bareAddress returns an address without a port, without the brackets that Jetty puts around IPv6, and without the
// name and the slash that Java puts in front. Other names are returned unchanged.
func bareAddress(host string) string {
	address := host[strings.LastIndexByte(host, '/')+1:]
	if inner, ok := strings.CutPrefix(address, "["); ok && strings.HasSuffix(inner, "]") {
		address = strings.TrimSuffix(inner, "]")
	} else if bare := withoutPort(address); bare != address {
		return bare
	}
	if _, err := netip.ParseAddr(address); err != nil {
		return host
	}
	return address
}

func withoutPort(host string) string {
	if address, err := netip.ParseAddrPort(host); err == nil {
		return address.Addr().String()
	}
	return host
}

// withoutOrigin returns the path of a URL that begins with a scheme and a host, and any other URL
// unchanged.
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

// find returns the last field with the given name, as JSON parsers do.
func (f fields) find(name string) (field, bool) {
	for i := len(f) - 1; i >= 0; i-- {
		if string(f[i].name) == name {
			return f[i], true
		}
	}
	return field{}, false
}

// text returns the text of the first named field that is present and not empty.
func (f fields) text(names ...string) string {
	for _, name := range names {
		if found, ok := f.findAlike(name); ok {
			if s := found.text(); s != "" {
				return s
			}
		}
	}
	return ""
}

// findAlike is like find, but the field's name may be written in another way, and "a.b" may also name the field b of an
// object a.
func (f fields) findAlike(name string) (found field, ok bool) {
	for i := len(f) - 1; i >= 0; i-- {
		if string(f[i].name) == name {
			return f[i], true
		}
		if !ok && mayBeAlike(f[i].name, name) && alike(string(f[i].name), name) {
			found, ok = f[i], true
		}
	}
	if object, inner, nested := strings.Cut(name, "."); !ok && nested {
		if outer, there := f.findAlike(object); there && !outer.plain && outer.value[0] == '{' {
			return scanObject(nil, outer.value).findAlike(inner)
		}
	}
	return found, ok
}

// mayBeAlike compares the first letters of two names. That tells most names apart, and takes a third off the time that
// reading JSON takes.
func mayBeAlike(a []byte, b string) bool {
	return len(a) > 0 && (a[0]|' ' == b[0]|' ' || isMark(a[0]) || isMark(b[0]))
}

// alike reports whether two names differ only in capitals and in what is neither a letter nor a digit.
func alike(a, b string) bool {
	for i, j := 0, 0; ; i, j = i+1, j+1 {
		for i < len(a) && isMark(a[i]) {
			i++
		}
		for j < len(b) && isMark(b[j]) {
			j++
		}
		if i == len(a) || j == len(b) {
			return i == len(a) && j == len(b)
		}
		if a[i] != b[j] && (a[i]^b[j] != ' ' || !isLetter(a[i])) {
			return false
		}
	}
}

func isLetter(c byte) bool { return c|' ' >= 'a' && c|' ' <= 'z' }

func isMark(c byte) bool { return c < 0x80 && !isLetter(c) && (c < '0' || c > '9') }

// number returns the named fields' text as a whole number, like 7 or 1500.0, or -1 if it is not one.
func (f fields) number(names ...string) int64 {
	text := f.text(names...)
	if whole, zeros, ok := strings.Cut(text, "."); ok && zeros != "" && strings.Trim(zeros, "0") == "" {
		text = whole
	}
	return digits([]byte(text))
}

// text returns the value of a string or a number, or of the first string of an array, and "" for any other value.
func (f field) text() string {
	switch {
	case f.plain:
		return string(f.value)
	case f.value[0] == '"':
		return unquote(f.value)
	case f.value[0] == '-' || f.value[0] >= '0' && f.value[0] <= '9':
		return string(f.value)
	case f.value[0] == '[':
		if first := bytes.TrimLeft(f.value[1:], " \t\r\n"); first[0] == '"' {
			return unquote(first[:valueEnd(first)])
		}
	}
	return ""
}
