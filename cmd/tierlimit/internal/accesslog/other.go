package accesslog

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The causes of a bad line in other formats than that of parse.
const (
	badJSON      = "begins like JSON, but is not a JSON object"
	noJSONTime   = `the JSON has no "time", or none like 2006-01-02T15:04:05Z or seconds since 1970`
	noRequest    = `a message that names no client, path or user; if it is a request, change the name of what is limited to "key"`
	loggedTwice  = "the same request as in another line, which counts"
	noColumnTime = `the columns that the header names have no time, or none like 2006-01-02T15:04:05Z or seconds since 1970`
	badColumns   = "neither as many columns as the header names, nor another format that is known"
	badZoneName  = "the name of the time's zone does not say how far it is from UTC, as +0100 does"
	badMethod    = "the method has a space, or the path a line end"
	notKey       = "a message rather than a key behind the time"
	badCost      = "the cost is not a whole number of at least 1"
)

// formats read lines that are of no web server. Each rejects most other lines by looking at a part of them.
var formats = []func([]byte) (Request, bool){
	parseEnvoy, parseAmazon, parseNetworkBalancer, parseS3, parseHAProxy, parseGin, parseChi, parseRails, parseUWSGI, parseTornado, parseSquid, parseCEF, parseLTSV, parsePHP, parseIIS, parseTabs,
	parseProxyManager, parseGlassFish, parseApacheTLS, parseUnbracketed,
}

// parseAny reads a line in any of the formats.
func parseAny(line []byte) (Request, fault) {
	if object := bytes.TrimLeft(line, " \t"); object[0] == '{' {
		return parseJSON(object)
	}
	if !bytes.Contains(line, []byte(`] "`)) {
		if r, f := parseBehind(line); f.what == "" || f.what == noRequest { // before parsePlain, which would take JSON without spaces for a key
			return r, f
		}
		if r, f, ok := parsePlain(line); ok {
			return r, f
		}
	}
	r, f := parseServer(line)
	if f.what == noTime || f.what == noStamp {
		if behind := line[len(fileOf.Find(line)):]; len(behind) < len(line) {
			if r, f := parseServer(behind); f.what == "" {
				return r, f
			}
		}
	}
	return r, f
}

// fileOf is what grep puts in front of the lines of several files: the file's name, and perhaps the line's number.
var fileOf = regexp.MustCompile(`^[^\s:"=]*[^\s:"=\d][^\s:"=]*:(?:\d+:)?\b`)

// parseServer reads a line in any of the formats but JSON and that of parsePlain.
func parseServer(line []byte) (Request, fault) {
	r, f := parse(line)
	if f.what == "" {
		return r, f
	}
	for _, format := range formats {
		if r, ok := format(line); ok {
			return r, fault{}
		}
	}
	inFront, wrong := parseTimeInFront(line)
	if wrong.what == "" {
		return inFront, wrong
	}
	if f.what == noTime || f.what == badTime {
		if r, ok := parseMoved(line); ok {
			return r, fault{}
		}
	}
	if f.what == badTime { // only then, because a long line takes a while
		if r, ok := parseISO(line); ok {
			return r, fault{}
		}
	}
	if f.what == noTime {
		if r, ok := parseUpstream(line); ok {
			return r, fault{}
		}
		return Request{}, wrong
	}
	return r, f
}

// parseISO reads a web server's line whose time is in another form, such as nginx's $time_iso8601.
func parseISO(line []byte) (Request, bool) {
	r, f := parseWith(func(b []byte) (time.Time, fault) {
		t, ok := parseStamp(string(b))
		if !ok {
			return t, fault{badTime, b}
		}
		return t, fault{}
	}, line)
	return r, f.what == ""
}

// parseBehind reads a JSON object that follows a prefix of syslog or Kubernetes, or the time and the tag of
// Fluentd. If the object has no time, but something of a request, the prefix has the time.
func parseBehind(line []byte) (Request, fault) {
	start := bytes.Index(line, []byte(`{"`))
	if start < 1 || strings.IndexByte(" \t:", line[start-1]) < 0 { // the colon is grep's
		return Request{}, fault{what: noTime}
	}
	object := bytes.TrimSuffix(line[start:], []byte(" []")) // Symfony's list of what else there is
	r, f := parseJSON(object)
	if f.what == noJSONTime {
		return scanObject(nil, object).requestBehind(string(line[:start]))
	}
	return r, f
}

// parsePlain reads "time key" or "time key cost", where the time may consist of a date, a time of day
// and a zone, or of six words, as in HTTP's headers. ok is false if the line does not begin with a time, or has more fields.
func parsePlain(line []byte) (r Request, f fault, ok bool) {
	fields := strings.Fields(string(line))
	if len(fields) < 2 {
		return r, f, false
	}
	words := 1
	at, ok := parseStamp(fields[0])
	if !ok && len(fields) > 2 {
		words = 2
		at, ok = parseStamp(fields[0] + " " + fields[1])
	}
	for n := 3; !ok && n <= 6 && n < len(fields) && (beginsNamed(fields[0]) || strings.IndexByte(fields[0], '/') > 0); n++ {
		words = n
		at, ok = parseStamp(strings.Join(fields[:n], " "))
	}
	if !ok {
		return r, f, false
	}
	for n := words + 1; n < len(fields) && mayBeZone(fields[n-1]); n++ { // a zone is no key
		if zoned, ok := parseStamp(strings.Join(fields[:n], " ")); ok {
			at, words = zoned, n
		}
	}
	if slices.Contains(zoneNames, fields[words]) && len(fields) > words+1 {
		if _, zoneless := parseStamp(strings.Join(fields[:words], " ") + "Z"); zoneless {
			return r, fault{badZoneName, []byte(fields[words])}, true
		}
	}
	if end := strings.IndexAny(fields[words], ",;|"); end >= 0 { // CSV, whose first column has a zone
		zone := fields[words][:end]
		if _, zoned := parseStamp(strings.Join(fields[:words], " ") + " " + zone); zoned || slices.Contains(zoneNames, zone) {
			return r, f, false
		}
	}
	fields = fields[words:]
	if len(fields) > 2 {
		return r, f, false
	}
	if isMessage(fields) {
		return r, fault{what: notKey}, true
	}
	r = Request{Time: at, Host: fields[0]}
	if len(fields) == 2 {
		if r.Cost = digits([]byte(fields[1])); r.Cost < 1 {
			return Request{}, fault{badCost, []byte(fields[1])}, true
		}
	}
	return r, f, true
}

// isMessage reports whether the words behind a time are a part of what programs write over several lines, such as
// "}", "=====" or "port: 3000".
func isMessage(words []string) bool {
	if len(words) == 2 && strings.HasSuffix(words[0], ":") {
		return !addressIn([]byte(words[0])).IsValid()
	}
	return words[0] != "-" && strings.Trim(words[0], "{}[]()<>=-*#") == ""
}

// mayBeZone reports whether a word looks like +0100, CET or PM, or like the reading of Go's monotonic clock behind them.
func mayBeZone(s string) bool {
	return s[0] == '+' || s[0] == '-' || strings.HasPrefix(s, "m=") || len(s) <= 5 && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

// zoneNames are zones that are not read, because some of their names stand for several. Behind a time without a zone
// they are no keys.
var zoneNames = strings.Fields("WET WEST BST IST CET CEST EET EEST MSK EST EDT CST CDT MST MDT PST PDT AKST AKDT HST JST KST AEST AEDT NZST NZDT")

// stamps are the layouts of times in other formats than RFC 3339. A time without a zone is in UTC.
var stamps = []string{"2006-01-02T15:04:05Z0700", "2006-01-02T15:04:05", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05Z0700", "2006-01-02 15:04:05", "2006-01-02 15:04:05 UTC",
	"2006-01-02 15:04:05Z07", "2006-01-02 15:04:05 -0700", "2006-01-02 15:04:05 -07:00", "2006-01-02 15:04:05 -0700 MST", "2006-01-02T15:04:05 -0700", "2006-01-02T15:04:05 UTC",
	"2006-01-02 15:04:05 GMT", "2006-01-02 3:04:05 PM"}

// namedStamps are the layouts of times that begin with the name of a weekday, or of a month as Kibana shows them.
var namedStamps = []string{"Mon, 02 Jan 2006 15:04:05 GMT", time.RFC1123Z, time.ANSIC, "Jan 2, 2006 @ 15:04:05"}

// americanStamps are the layouts of times as Azure writes them.
var americanStamps = []string{"1/2/2006 3:04:05 PM", "1/2/2006 3:04:05 PM -07:00"}

// parseStamp reads a time in RFC 3339 or a similar format, as web servers write it, or as a number
// since 1970.
func parseStamp(s string) (t time.Time, ok bool) {
	t, err := time.Parse(time.RFC3339, s) // also reads fractions of a second
	if err != nil {
		t, err = parseLayouts(s)
	}
	if err != nil {
		var wrong fault
		t, wrong = parseTime([]byte(s))
		if zoneless := strings.TrimSuffix(s, " UTC"); wrong.what != "" && len(zoneless) > len("02/Jan/2006") { // and perhaps with a space
			t, wrong = parseTime([]byte(zoneless[:len("02/Jan/2006")] + ":" + zoneless[len("02/Jan/2006:"):] + " +0000"))
		}
		if wrong.what != "" {
			return parseEpoch(s)
		}
	}
	return t.UTC(), t.Unix() >= 0 && t.Unix() < lastSecond
}

var errNoLayout = errors.New("no layout fits")

func parseLayouts(s string) (t time.Time, err error) {
	if len(s) <= len("2006-01-02") {
		return t, errNoLayout
	}
	layouts := stamps
	switch {
	case s[1] == '/' || s[2] == '/': // only with a clock of 12 hours, because other countries have the day in front
		s, layouts = strings.Replace(s, ",", "", 1), americanStamps
	case s[3] == ' ' || s[3] == ',':
		layouts = namedStamps
	case s[4] == '/' && s[7] == '/': // as Go's package log writes it
		s = s[:4] + "-" + s[5:7] + "-" + s[8:]
	case s[4] != '-':
		return t, errNoLayout
	}
	s, _, _ = strings.Cut(s, " m=") // Go's monotonic clock
	for _, layout := range layouts {
		if t, err = time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return t, err
}

// parseEpoch reads a number of seconds since 1970, with or without a fraction, or of milliseconds,
// microseconds or nanoseconds. The size tells the units apart: 1e11 is in the year 5138 if it is in
// seconds, and in 1973 if it is in milliseconds.
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

// parseJSON reads a JSON object.
func parseJSON(line []byte) (Request, fault) {
	line = bytes.TrimSuffix(line, []byte(",")) // of an array without its brackets
	if !json.Valid(line) {
		// nginx writes \x22 for a quote unless its log_format says escape=json. It then writes no other backslash.
		line = bytes.ReplaceAll(line, []byte(`\x`), []byte(`\u00`))
		if !json.Valid(line) {
			return Request{}, fault{what: badJSON}
		}
	}
	var room [32]field
	object := scanObject(room[:0], line)
	if payload, ok := object.find("jsonPayload"); ok && payload.value[0] == '{' { // of Google's, which keeps the time outside
		object = object.withPayload(payload.value)
	}
	for _, name := range []string{"_source", "fields", "result", "attributes"} { // of Elasticsearch's exports, Splunk's and Datadog's, around everything
		if payload, ok := object.find(name); ok && payload.value[0] == '{' {
			if _, timed := object.time(); !timed {
				object = scanObject(object, payload.value)
			}
		}
	}
	if inner, only := innerLine(object); inner != nil {
		if r, f := object.parseInner(inner); only || f.what == "" && r.Host != "-" {
			return r, f
		}
	}
	return object.request()
}

// ofHTTPRequest are the fields of the object httpRequest of Google's LogEntry, by the names that count first.
var ofHTTPRequest = map[string]string{"remoteIp": "remote_ip", "requestMethod": "method", "requestUrl": "path", "status": "status", "responseSize": "bytes"}

// withPayload appends the fields of the jsonPayload of one of Google's entries. They are what the program wrote. The
// entry itself has the request in httpRequest, whose fields count before those of the payload.
func (f fields) withPayload(payload []byte) fields {
	entry, ok := f.find("httpRequest")
	f = scanObject(f, payload)
	if !ok || entry.value[0] != '{' {
		return f
	}
	for _, inner := range scanObject(nil, entry.value) {
		if name := ofHTTPRequest[string(inner.name)]; name != "" && inner.text() != "" {
			f = append(f, field{name: []byte(name), value: inner.value})
		}
	}
	return f
}

// innerLine returns the log line inside an object of a program that collects lines, or nil. The object's
// own time is when the line arrived, not the time of the request. If only is true, the object is no
// request by itself: it is of Docker's log driver json-file, of journald's export, or of Vector, whose
// "host" is the machine. Others, such as Filebeat and Loki, use names that an application may use, too.
func innerLine(object fields) (line []byte, only bool) {
	text := ""
	_, vector := object.find("source_type") // and not Splunk's sourcetype
	switch {
	case object.text("stream") != "" && object.text("log") != "":
		text, only = object.text("log"), true
	case object.text("__REALTIME_TIMESTAMP") != "":
		text, only = object.text("MESSAGE"), true
	case vector && !addressIn([]byte(object.host())).IsValid():
		text, only = object.text("message"), true
	default:
		text = object.text("message", "log", "line", "@message", "textPayload", "_raw", "short_message", "event", "content")
		plain := !strings.Contains(text, " HTTP/") && !strings.Contains(text, "=") && !isWithoutProtocol([]byte(text))
		if !strings.Contains(text, `] "`) && !strings.HasPrefix(text, "{") && (plain || object.text(clientNames...) != "") {
			return nil, false
		}
	}
	if text = strings.TrimSpace(text); text == "" || strings.Contains(text, "\n") {
		return nil, false
	}
	return []byte(text), only
}

// isWithoutProtocol reports whether a line is of a server that does not write the protocol of its requests.
func isWithoutProtocol(line []byte) bool {
	_, squid := parseSquid(line)
	_, balancer := parseNetworkBalancer(line)
	return squid || balancer
}
