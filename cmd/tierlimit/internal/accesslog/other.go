package accesslog

import (
	"bytes"
	"encoding/json"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// The causes of a bad line in the other formats.
const (
	badJSON    = "begins like JSON, but is no object of it"
	noJSONTime = `no "time" in the JSON, or none like 2006-01-02T15:04:05Z or seconds since 1970`
	badCost    = "the cost is not a whole number of at least 1"
)

// The names that a field of JSON may have, the first that is there. Some are those of Caddy, which
// has objects in objects, of Traefik, Envoy, and nginx's variables. "host" comes last, since next to an
// address it is mostly the server's name.
var (
	timeNames   = []string{"StartUTC", "time", "ts", "timestamp", "@timestamp", "start_time", "msec", "time_iso8601", "time_local"}
	hostNames   = []string{"remote_addr", "client_ip", "remote_ip", "ip", "ClientHost", "request.client_ip", "request.remote_ip", "downstream_remote_address", "host"}
	userNames   = []string{"user", "user_id", "remote_user", "ClientUsername"}
	methodNames = []string{"method", "request_method", "RequestMethod", "request.method"}
	pathNames   = []string{"path", "uri", "request_uri", "url", "RequestPath", "request.uri"}
	bytesNames  = []string{"bytes", "bytes_sent", "body_bytes_sent", "size", "DownstreamContentSize"}
)

// parseAny reads a line of any of the formats.
func parseAny(line []byte) (Request, fault) {
	if object := bytes.TrimLeft(line, " \t"); object[0] == '{' {
		return parseJSON(object)
	}
	if !bytes.Contains(line, []byte(`] "`)) {
		if r, f, ok := parsePlain(line); ok {
			return r, f
		}
	}
	return parse(line)
}

// parsePlain reads "time key" or "time key cost". ok is false if the line does not begin with a
// time, or has more fields.
func parsePlain(line []byte) (r Request, f fault, ok bool) {
	fields := strings.Fields(string(line))
	if len(fields) < 2 || len(fields) > 3 {
		return r, f, false
	}
	at, ok := parseStamp(fields[0])
	if !ok {
		return r, f, false
	}
	r = Request{Time: at, Host: fields[1]}
	if len(fields) == 3 {
		if r.Cost = digits([]byte(fields[2])); r.Cost < 1 {
			return Request{}, fault{badCost, []byte(fields[2])}, true
		}
	}
	return r, f, true
}

// parseStamp reads a time as RFC 3339, as web servers write it, or as a number since 1970.
func parseStamp(s string) (time.Time, bool) {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		var wrong fault
		if t, wrong = parseTime([]byte(s)); wrong.what != "" {
			return parseEpoch(s)
		}
	}
	return t.UTC(), t.Unix() >= 0 && t.Unix() < lastSecond
}

// parseEpoch reads seconds since 1970 with or without a fraction, or milliseconds, microseconds or
// nanoseconds, which the size tells apart: 1e11 is in the year 5138 if it is seconds, and in 1973 if
// it is milliseconds.
func parseEpoch(s string) (time.Time, bool) {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || !(n >= 0 && n < lastSecond*1e9) {
		return time.Time{}, false
	}
	perSecond := 1.0
	for n >= 1e11*perSecond {
		perSecond *= 1000
	}
	if n >= lastSecond*perSecond {
		return time.Time{}, false
	}
	return time.UnixMicro(int64(math.Round(n / perSecond * 1e6))).UTC(), true
}

// parseJSON reads an object.
func parseJSON(line []byte) (Request, fault) {
	var fields map[string]any
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.UseNumber()
	if err := decoder.Decode(&fields); err != nil || decoder.More() {
		return Request{}, fault{what: badJSON}
	}
	if inner, ok := dockerLine(fields); ok {
		return parseAny(inner)
	}
	at, ok := jsonTime(fields)
	if !ok {
		return Request{}, fault{what: noJSONTime}
	}
	r := Request{
		Time: at, Host: jsonHost(fields), User: text(fields, userNames...),
		Method: strings.TrimSpace(text(fields, methodNames...)), Path: strings.Trim(text(fields, pathNames...), " "),
		Status: int(max(0, min(999, number(fields, "status")))), Bytes: max(0, number(fields, bytesNames...)),
	}
	if r.Host == "" {
		r.Host = "-"
	}
	if r.Method == "" && r.Path == "" {
		r.Method, r.Path = splitRequest(text(fields, "request")) // nginx's variable
	}
	if strings.Contains(r.Method, " ") || strings.Contains(r.Path, "\n") {
		return Request{}, fault{what: badJSON}
	}
	if _, said := fields["cost"]; said {
		if r.Cost = number(fields, "cost"); r.Cost < 1 {
			return Request{}, fault{badCost, []byte(text(fields, "cost"))}
		}
	}
	return r, fault{}
}

// dockerLine is the line in an object as Docker's log driver json-file writes it: with the stream that
// the line came on, and the time when it came, which is not the request's.
func dockerLine(fields map[string]any) (line []byte, ok bool) {
	text, _ := fields["log"].(string)
	_, streamed := fields["stream"].(string)
	text = strings.TrimSpace(text)
	return []byte(text), streamed && text != "" && !strings.Contains(text, "\n")
}

// jsonTime is the first time that can be read.
func jsonTime(fields map[string]any) (time.Time, bool) {
	for _, name := range timeNames {
		if at, ok := parseStamp(text(fields, name)); ok {
			return at, true
		}
	}
	return time.Time{}, false
}

// jsonHost is the key, or else the client's address without its port, which each connection has
// another of.
func jsonHost(fields map[string]any) string {
	if key := text(fields, "key"); key != "" {
		return key
	}
	host := text(fields, hostNames...)
	if address, err := netip.ParseAddrPort(host); err == nil {
		return address.Addr().String()
	}
	return host
}

// text is the first field that is there and not empty, as text. "a.b" is the field b of an object a.
func text(fields map[string]any, names ...string) string {
	for _, name := range names {
		value := fields[name]
		if object, inner, ok := strings.Cut(name, "."); ok {
			of, _ := fields[object].(map[string]any)
			value = of[inner]
		}
		switch v := value.(type) {
		case string:
			if v != "" {
				return v
			}
		case json.Number:
			return v.String()
		}
	}
	return ""
}

// number is the same as a whole number; -1 if it is none.
func number(fields map[string]any, names ...string) int64 {
	return digits([]byte(text(fields, names...)))
}
