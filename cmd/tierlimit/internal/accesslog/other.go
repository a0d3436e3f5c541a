package accesslog

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"
)

// The causes of a bad line in the other formats.
const (
	badJSON     = "begins like JSON, but is no object of it"
	noJSONTime  = `no "time" in the JSON, or none like 2006-01-02T15:04:05Z or seconds since 1970`
	badJSONHost = `the "host" or "key" in the JSON has a space`
	badCost     = "the cost is not a whole number of at least 1"
)

// The names that a field of JSON may have, the first that is there.
var (
	timeNames   = []string{"time", "ts", "timestamp", "@timestamp"}
	hostNames   = []string{"key", "host", "remote_addr", "remote_ip", "client_ip", "ip"}
	userNames   = []string{"user", "user_id", "remote_user"}
	methodNames = []string{"method", "request_method"}
	pathNames   = []string{"path", "uri", "request_uri", "url"}
	bytesNames  = []string{"bytes", "bytes_sent", "body_bytes_sent", "size"}
)

// parseAny reads a line of any of the formats.
func parseAny(line []byte) (Request, fault) {
	if line[0] == '{' {
		return parseJSON(line)
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

// parseStamp reads a time as RFC 3339, or as seconds since 1970 with or without a fraction.
func parseStamp(s string) (time.Time, bool) {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		seconds, err := strconv.ParseFloat(s, 64)
		if err != nil || !(seconds >= 0 && seconds < 1e10) { // the year 2286
			return time.Time{}, false
		}
		t = time.UnixMicro(int64(math.Round(seconds * 1e6)))
	}
	return t.UTC(), t.Unix() >= 0 && t.Unix() < 1e10
}

// parseJSON reads an object.
func parseJSON(line []byte) (Request, fault) {
	var fields map[string]any
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.UseNumber()
	if err := decoder.Decode(&fields); err != nil || decoder.More() {
		return Request{}, fault{what: badJSON}
	}
	at, ok := parseStamp(text(fields, timeNames...))
	if !ok {
		return Request{}, fault{what: noJSONTime}
	}
	r := Request{
		Time: at, Host: text(fields, hostNames...), User: text(fields, userNames...),
		Method: strings.TrimSpace(text(fields, methodNames...)), Path: strings.Trim(text(fields, pathNames...), " "),
		Status: int(max(0, min(999, number(fields, "status")))), Bytes: max(0, number(fields, bytesNames...)),
	}
	if r.Host == "" {
		r.Host = "-"
	}
	if strings.Contains(r.Host, " ") {
		return Request{}, fault{badJSONHost, []byte(r.Host)}
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

// text is the first field that is there, as text.
func text(fields map[string]any, names ...string) string {
	for _, name := range names {
		switch v := fields[name].(type) {
		case string:
			return v
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
